package catalog

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/contract/routing"
)

const journalFile = "journal.yaml"

// The handlers of the journal: one posts an entry, the other reverses the entry of another event.
const (
	JournalPost   = "journal.post"
	JournalRevert = "journal.revert"
)

// Journal is the chart of accounts, and the rules that make entries of events.
type Journal struct {
	Unmapped Unmapped `json:"unmapped"` // what becomes of an event without a rule
	// Ahead and Behind are how far from our clock an event may say that it happened.
	Ahead  time.Duration      `json:"ahead"`
	Behind time.Duration      `json:"behind"`
	Chart  map[string]Account `json:"accounts"` // the accounts by their ids
	// Rules are by event type, or by a pattern of event types. Rule finds the one of a type.
	Rules map[string]Rule `json:"rules"`
}

// Unmapped is what becomes of an event without a rule.
type Unmapped string

// The choices.
const (
	IgnoreUnmapped     Unmapped = "ignore"      // it is done, and counted by its result
	DeadLetterUnmapped Unmapped = "dead_letter" // it waits for a rule
)

// Account is an account of the chart.
type Account struct {
	Type        AccountType `json:"type"`        // asset, liability, equity, revenue or expense
	Description string      `json:"description"` // what is on it
}

// AccountType is the side of the books that an account is on.
type AccountType string

// The types of account.
const (
	Asset     AccountType = "asset"
	Liability AccountType = "liability"
	Equity    AccountType = "equity"
	Revenue   AccountType = "revenue"
	Expense   AccountType = "expense"
)

// Rule says which entry an event becomes.
type Rule struct {
	Name  string     `json:"-"`     // the event type, or the pattern, that it stands under
	Lines []RuleLine `json:"lines"` // the lines of the entry: their debits are their credits
}

// RuleLine says which line of an entry an event becomes.
type RuleLine struct {
	Debit    string `json:"debit"`    // the account; a line has debit or credit
	Credit   string `json:"credit"`   // the account; a line has debit or credit
	Amount   Terms  `json:"amount"`   // the sum of its terms, never below 0
	Currency string `json:"currency"` // a code, or the member of the event's data that says it
}

// Account returns the account of the line.
func (l RuleLine) Account() string { return l.Debit + l.Credit }

// CurrencyMember reports whether the line's currency is the value of a member, and not a code.
func (l RuleLine) CurrencyMember() bool { return !currencyCode.MatchString(l.Currency) }

// Terms are the members of an event's data whose sum is an amount; one with a leading - is subtracted.
type Terms []string

// UnmarshalJSONFrom reads one term, or a list.
func (t *Terms) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	text, err := from.ReadValue()
	if err != nil {
		return err
	}
	if text.Kind() == '"' {
		text = slices.Concat([]byte{'['}, text, []byte{']'})
	}
	if json.Unmarshal(text, (*[]string)(t)) != nil {
		return errTerms
	}
	return nil
}

var errTerms = errors.New("must be a path, or a list of paths")

// Term splits a term into the member's name, and whether it is subtracted.
func Term(term string) (member string, minus bool) { return strings.CutPrefix(term, "-") }

// Rule finds the rule of an event type: its own, else the rule of the narrowest pattern.
func (j Journal) Rule(eventType string) (Rule, bool) {
	return routing.Table[Rule](j.Rules).Find(eventType)
}

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// maxRuleLines bounds an entry, so that it fits into a document and into a message.
const maxRuleLines = 50

// readJournal leaves the journal without rules if there is no file: its events become dead letters.
func (c *Catalog) readJournal(r *reader, file map[string]*yaml.Node) {
	c.Journal = Journal{Unmapped: DeadLetterUnmapped}
	if file == nil {
		return
	}
	chosen := map[string]any{}
	for _, key := range []string{"unmapped", "ahead", "behind"} {
		if node := file[key]; node != nil {
			chosen[key] = r.tree(node, journalFile, key)
		}
	}
	c.Journal.Unmapped = ""
	r.decode(chosen, &c.Journal, journalFile, "")
	require := r.requirer(journalFile)
	require(c.Journal.Ahead > 0, "ahead", "must be above 0s")
	require(c.Journal.Behind > 0, "behind", "must be above 0s")
	oneOf(require, "unmapped", c.Journal.Unmapped, IgnoreUnmapped, DeadLetterUnmapped)
	c.Journal.Chart = each(r, file["accounts"], journalFile, "accounts", "account",
		func(id string, a *Account, require requirer) {
			require(word.MatchString(id), "", wordRule) // no colon: the accounts of points have some
			oneOf(require, "type", a.Type, Asset, Liability, Equity, Revenue, Expense)
			require(a.Description != "", "description", "is missing")
		})
	var types []string
	c.Journal.Rules = each(r, file["rules"], journalFile, "rules", "rule",
		func(eventType string, rule *Rule, _ requirer) {
			rule.Name = eventType
			for _, other := range types {
				r.checkNarrower(journalFile+": rule "+shown(eventType), "", other, eventType)
			}
			types = append(types, eventType)
		})
	for _, eventType := range types {
		place := journalFile + ": rule " + shown(eventType)
		r.checkRule(place, c.Journal.Rules[eventType], c.Journal.Chart)
		r.checkMembers(place, eventType, c)
	}
}

// checkRule checks a rule without the events that it is for.
func (r *reader) checkRule(place string, rule Rule, chart map[string]Account) {
	require := r.requirer(place)
	within(require, "lines", len(rule.Lines), 2, maxRuleLines, "")
	sums, stands := map[[2]string]int{}, map[string]bool{} // sums of a currency and a member
	for i, line := range rule.Lines {
		path, account, currency := linePath(i), line.Account(), line.Currency
		require((line.Debit == "") != (line.Credit == ""), path, "must have debit or credit, and not both")
		_, known := chart[account]
		require(known || account == "", path, "the chart has no account "+shown(account))
		require(currency != "", path+".currency", "is missing")
		if !line.CurrencyMember() {
			_, ok := money.Exponent(currency)
			require(ok, path+".currency", shown(currency)+" is no currency with a minor unit, as ISO 4217 has them")
		}
		require(len(line.Amount) > 0, path+".amount", "is missing")
		inCurrency := account + " " + currency
		require(!stands[inCurrency], path, "account "+shown(account)+" stands in two lines of one currency")
		stands[inCurrency] = true
		for _, term := range line.Amount {
			member, minus := Term(term)
			if minus == (line.Credit == "") { // -x debited, or x credited
				sums[[2]string{currency, member}]--
			} else {
				sums[[2]string{currency, member}]++
			}
		}
	}
	left := map[string][]string{} // the members of each currency that are not balanced
	for key, sum := range sums {
		if sum != 0 {
			left[key[0]] = append(left[key[0]], shown(key[1]))
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(left)) { // they have one line, so that none sorts them
		members := left[currency]
		slices.Sort(members)
		r.wrong(place, "lines", fmt.Sprintf("do not balance in %s: debits and credits of %s differ",
			shown(currency), strings.Join(members, ", ")))
	}
}

// checkMembers checks that each event of a rule has the members that its lines need.
func (r *reader) checkMembers(place, eventType string, c *Catalog) {
	if _, err := routing.Parse(eventType); err != nil {
		r.wrong(place, "", "must be for an event type, or a pattern of them")
		return
	}
	taken := false
	for _, q := range c.Queues {
		if h, ok := q.Handler(eventType); !ok || h.Name != JournalPost {
			continue
		}
		taken = true
		for _, content := range c.Contracts.Contents(q.Contract, eventType) {
			// A narrower rule may take all events of a type. Otherwise each event decides which rule applies.
			rule, declared := routing.Pattern(eventType), routing.Pattern(content.Type)
			other, ok := c.Journal.Rule(content.Type)
			narrower := ok && routing.Narrower(routing.Pattern(other.Name), rule) < 0
			if !narrower && (rule.Match(content.Type) || declared.Match(eventType)) {
				r.checkContent(place, c.Journal.Rules[eventType], content.Declaration)
			}
		}
	}
	if !taken {
		r.wrong(place, "", "no queue has the handler "+JournalPost+" for it")
	}
}

// checkContent checks a rule against the declaration of one version of an event type.
func (r *reader) checkContent(place string, rule Rule, content contract.Declaration) {
	require := r.requirer(place)
	of := " of " + content.Type + " is "
	members := map[string]contract.Member{}
	currency := ""
	for _, m := range content.Members {
		members[m.Name] = m
		if m.Shape == "currency" {
			currency = m.Name
		}
	}
	needs := false
	for i, line := range rule.Lines {
		path, said := linePath(i), shown(line.Currency)
		if line.CurrencyMember() && line.Currency != "" {
			require(members[line.Currency].Shape == "currency", path+".currency",
				said+of+"no currency that is declared")
		}
		for _, term := range line.Amount {
			name, _ := Term(term)
			member, ok := members[name]
			shape, _, _ := strings.Cut(member.Shape, " ")
			needs = needs || member.Required
			switch {
			case !ok:
				r.wrong(place, path+".amount", shown(name)+of+"not declared")
			case shape == "amount":
				require(line.Currency == currency, path+".currency",
					shown(name)+of+"an amount of "+shown(currency)+", and not of "+said)
			case shape != "integer" && shape != "quantity":
				r.wrong(place, path+".amount", shown(name)+of+"no amount, integer or quantity")
			}
			named := shape == "amount" || !line.CurrencyMember() || members[line.Currency].Required
			require(!ok || named, path+".currency",
				said+of+"not required, and "+shown(name)+" does not say its currency itself")
		}
	}
	require(needs || len(rule.Lines) == 0, "lines",
		"need no member of "+content.Type+" that is required: there could be nothing to post")
}

func linePath(i int) string { return "lines[" + strconv.Itoa(i) + "]" }
