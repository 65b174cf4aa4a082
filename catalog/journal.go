package catalog

import (
	"errors"
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

// The handlers of the journal: one posts an entry, the other reverses that of another event.
const (
	JournalPost   = "journal.post"
	JournalRevert = "journal.revert"
)

// Journal is the chart of accounts, and the rules that make entries of events.
type Journal struct {
	// Unmapped is what becomes of an event without a rule.
	Unmapped Unmapped `json:"unmapped"`
	// Ahead and Behind are how far from our clock an event may say that it happened.
	Ahead  time.Duration `json:"ahead"`
	Behind time.Duration `json:"behind"`
	// Chart are the accounts by their ids.
	Chart map[string]Account `json:"accounts"`
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

// AccountType is the side of the books that an account stands on.
type AccountType string

// The types of account.
const (
	Asset     AccountType = "asset"
	Liability AccountType = "liability"
	Equity    AccountType = "equity"
	Revenue   AccountType = "revenue"
	Expense   AccountType = "expense"
)

// Rule makes an entry of an event.
type Rule struct {
	// Name is the event type, or the pattern, that it stands under.
	Name  string     `json:"-"`
	Lines []RuleLine `json:"lines"` // the lines of the entry: their debits are their credits
}

// RuleLine makes a line of an entry. It has one of Debit and Credit.
type RuleLine struct {
	Debit  string `json:"debit"`  // the account; a line has debit or credit
	Credit string `json:"credit"` // the account; a line has debit or credit
	// Amount is the sum of its terms, never below 0.
	Amount Terms `json:"amount"`
	// Currency is a code, or the member of the event's data that says it.
	Currency string `json:"currency"`
}

// Account is the account of the line.
func (l RuleLine) Account() string { return l.Debit + l.Credit }

// CurrencyMember reports whether the line's currency is that of a member, and not a code.
func (l RuleLine) CurrencyMember() bool { return !currencyCode.MatchString(l.Currency) }

// Terms are members of an event's data that are added, or one; one behind a - is taken away.
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

// Term splits a term into the member's name, and whether it is taken away.
func Term(term string) (member string, minus bool) {
	member, minus = strings.CutPrefix(term, "-")
	return member, minus
}

// Rule finds the rule of an event type: its own, else that of the narrowest pattern.
func (j Journal) Rule(eventType string) (Rule, bool) {
	return routing.Table[Rule](j.Rules).Find(eventType)
}

var (
	// No colon: the accounts of points have some, and the two kinds never meet.
	accountID    = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
	currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)
	accountTypes = []AccountType{Asset, Liability, Equity, Revenue, Expense}
)

// maxRuleLines bounds the lines of an entry, so that it fits into a document and into a message.
const maxRuleLines = 50

// readJournal: without the file there is no rule, and an event of the journal is a dead letter.
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
	require(c.Journal.Ahead > 0, "ahead", "must be a time that is longer than 0")
	require(c.Journal.Behind > 0, "behind", "must be a time that is longer than 0")
	require(c.Journal.Unmapped == IgnoreUnmapped || c.Journal.Unmapped == DeadLetterUnmapped, "unmapped",
		"must be ignore or dead_letter")
	c.Journal.Chart = each(r, file["accounts"], journalFile, "accounts", "account",
		func(id string, a *Account, require requirer) {
			require(accountID.MatchString(id), "",
				"an account's id is at most 64 of a-z, 0-9 and _ . -, and begins with a letter")
			require(slices.Contains(accountTypes, a.Type), "type",
				"must be asset, liability, equity, revenue or expense")
			require(a.Description != "", "description", "is missing")
		})
	var types []string
	c.Journal.Rules = each(r, file["rules"], journalFile, "rules", "rule",
		func(eventType string, rule *Rule, require requirer) {
			rule.Name = eventType
			for _, other := range types {
				ambiguous := routing.Ambiguous(routing.Pattern(other), routing.Pattern(eventType))
				require(!ambiguous, "", "holds event types that "+shown(other)+" holds too, and neither is narrower")
			}
			types = append(types, eventType)
		})
	for _, eventType := range types {
		place := journalFile + ": rule " + shown(eventType)
		r.checkRule(place, c.Journal.Rules[eventType], c.Journal.Chart)
		r.checkMembers(place, eventType, c)
	}
}

// checkRule checks what can be said of a rule without the events that it takes.
func (r *reader) checkRule(place string, rule Rule, chart map[string]Account) {
	require := r.requirer(place)
	require(2 <= len(rule.Lines) && len(rule.Lines) <= maxRuleLines, "lines", "must be 2 to 50")
	sums, stands := map[string]map[string]int{}, map[string]bool{}
	for i, line := range rule.Lines {
		path := linePath(i)
		require((line.Debit == "") != (line.Credit == ""), path, "must have debit or credit, and not both")
		_, known := chart[line.Account()]
		require(known || line.Account() == "", path, "the chart has no account "+shown(line.Account()))
		require(line.Currency != "", path+".currency", "is missing")
		if !line.CurrencyMember() {
			_, ok := money.Exponent(line.Currency)
			require(ok, path+".currency",
				shown(line.Currency)+" is no currency with a minor unit, as ISO 4217 has them")
		}
		require(len(line.Amount) > 0, path+".amount", "is missing")
		require(!stands[line.Account()+" "+line.Currency], path,
			"account "+shown(line.Account())+" stands in two lines of one currency")
		stands[line.Account()+" "+line.Currency] = true
		if sums[line.Currency] == nil {
			sums[line.Currency] = map[string]int{}
		}
		for _, term := range line.Amount {
			member, minus := Term(term)
			if minus == (line.Credit == "") { // -x debited, or x credited
				sums[line.Currency][member]--
			} else {
				sums[line.Currency][member]++
			}
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		var left []string
		for _, member := range slices.Sorted(maps.Keys(sums[currency])) {
			if sums[currency][member] != 0 {
				left = append(left, shown(member))
			}
		}
		require(len(left) == 0, "lines", "do not balance in "+shown(
			currency)+": what is debited and credited of "+strings.Join(left, ", ")+" differs")
	}
}

// checkMembers checks that each event that the rule takes says what its lines need.
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
			// What a narrower rule takes whole is not this rule's. Else the event decides.
			rule, declared := routing.Pattern(eventType), routing.Pattern(content.Type)
			other, ok := c.Journal.Rule(content.Type)
			if (!ok || routing.Narrower(routing.Pattern(other.Name), rule) >= 0) &&
				(rule.Match(content.Type) || declared.Match(eventType)) {
				r.checkContent(place, c.Journal.Rules[eventType], content.Declaration)
			}
		}
	}
	if !taken {
		r.wrong(place, "", "no queue has the handler "+JournalPost+" for it")
	}
}

// checkContent checks a rule against what is declared of one version of an event type.
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
		path := linePath(i)
		if line.CurrencyMember() && line.Currency != "" {
			require(members[line.Currency].Shape == "currency", path+".currency",
				shown(line.Currency)+of+"no currency that is declared")
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
					shown(name)+of+"an amount of "+shown(currency)+", and not of "+shown(line.Currency))
			case shape != "integer" && shape != "quantity":
				r.wrong(place, path+".amount", shown(name)+of+"no amount, integer or quantity")
			}
			require(!ok || shape == "amount" || !line.CurrencyMember() ||
				members[line.Currency].Required, path+".currency",
				shown(line.Currency)+of+"not required, and "+shown(name)+" does not say its currency itself")
		}
	}
	require(needs || len(rule.Lines) == 0, "lines",
		"need no member of "+content.Type+" that is required: there could be nothing to post")
}

func linePath(i int) string { return "lines[" + strconv.Itoa(i) + "]" }
