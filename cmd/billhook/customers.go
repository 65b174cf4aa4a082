package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/apps/customers"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) customersCommand() *cobra.Command {
	command, ask := p.under("customers", "Look at which of PayNow's customers is which user, link them or unlink them", true)
	command.AddCommand(p.customersShow(ask), p.customersLink(ask), changes(p, ask, change[customers.State]{
		question: question{use: "unlink <customer>", short: "Remove a customer's link; no points move", path: customerPath}, method: http.MethodDelete,
		plan: func(args []string, before customers.State, why reason) (word, do string, body any) {
			p.printCustomer(before)
			p.printf("It would be linked to nobody. What was credited to %s stays there.\n", before.UID)
			return args[0], "unlink", customers.Change{Why: why.why, Expect: &before.UID}
		},
	}, p.printCustomer))
	return command
}

const customerPath = "/v1/ops/customers/{}"

type customer struct {
	ops.Activity
	Changes []audit.Entry `json:"changes"`
}

func (p *program) customersShow(ask func() client) *cobra.Command {
	command, path := question{
		use: "show <customer>", short: "Show whom a customer is linked to, and what has come of them: events, points, orders, refunds, dead letters", path: customerPath + "/activity",
	}.command()
	command.RunE = func(command *cobra.Command, args []string) error {
		c := customer{Changes: []audit.Entry{}}
		at, _ := url.Parse(path(command, args)) // its parts are escaped
		if err := ask().get(command.Context(), at.String(), &c.Activity); err != nil {
			return err
		}
		changes, err := pages[audit.Entry](command.Context(), ask(), strings.TrimSuffix(at.EscapedPath(), "/activity")+"/changes", at.Query(), 0)
		if err != nil {
			return err
		}
		c.Changes = changes.Items
		p.printCustomer(c.State)
		for _, finding := range c.Findings {
			p.printf("! %s\n", audit.Escape(finding))
		}
		if len(c.Changes) > 0 {
			changesOf("uid").print(p, c.Changes)
		}
		p.printActivity(c.Activity)
		return p.printJSON(c)
	}
	return command
}

func (p *program) printCustomer(s customers.State) {
	since := when(s.Since)
	if s.Since.IsZero() {
		since = "a time that is not known"
	}
	switch {
	case s.UID == "":
		p.printf("Customer %s is linked to nobody.\n", s.CustomerID)
	case s.TaughtBy != "":
		p.printf("Customer %s is linked to %s, by the order of event %s, since %s.\n", s.CustomerID, s.UID, s.TaughtBy, since)
	default:
		p.printf("Customer %s is linked to %s, by hand, since %s.\n", s.CustomerID, s.UID, since)
	}
	if s.MovedOrders > 0 {
		p.printf("%d points of %d guests' orders were moved to it.\n", s.MovedPoints, s.MovedOrders)
	}
	if s.GuestPoints != 0 {
		p.printf("%d points of guests' orders are on %s; linking moves them.\n", s.GuestPoints, s.GuestAccount)
	}
}

func (p *program) printActivity(a ops.Activity) {
	rows := map[string][][]string{}
	for _, e := range a.Events {
		rows["EVENT"] = append(rows["EVENT"], row(when(e.CreatedAt), e.EventID, e.EventType, e.Queue, e.Status, orDash(cmp.Or(e.Reason, e.Result)), e.OrderingKey))
	}
	for _, m := range a.Moves {
		rows["MOVED"] = append(rows["MOVED"], row(when(m.At), m.Order, m.Kind, m.Amount, m.Account, m.EventID))
	}
	for _, b := range a.Balances {
		rows["ACCOUNT"] = append(rows["ACCOUNT"], row(b.Account, b.Balance))
	}
	for _, o := range a.Orders {
		rows["ORDER"] = append(rows["ORDER"], row(o.ID, o.State, orDash(o.Reason), o.UserID, orDash(o.PaymentID)))
	}
	for _, r := range a.Refunds {
		rows["REFUND"] = append(rows["REFUND"], row(r.PaymentID, r.State, orDash(r.Reason), orDash(strings.TrimSpace(r.Amount+" "+r.Currency)), r.EventID))
	}
	for _, l := range a.DeadLetters {
		rows["DEAD LETTER"] = append(rows["DEAD LETTER"], row(l.ID, l.EventID, l.Queue, l.State, l.Reason))
	}
	for _, columns := range [][]string{
		{"EVENT", "CAME", "ID", "TYPE", "QUEUE", "STATUS", "RESULT", "KEY"}, {"MOVED", "AT", "OF ORDER", "KIND", "POINTS", "ACCOUNT", "BY EVENT"},
		{"ACCOUNT", "ACCOUNT", "POINTS"}, {"ORDER", "ORDER", "STATE", "REASON", "USER", "PAYMENT"}, {"REFUND", "REFUND OF", "STATE", "REASON", "AMOUNT", "BY EVENT"},
		{"DEAD LETTER", "DEAD LETTER", "EVENT", "QUEUE", "STATE", "REASON"},
	} {
		if some := rows[columns[0]]; len(some) > 0 {
			p.printf("\n")
			p.table(columns[1:], some)
		}
	}
	if len(a.Subscriptions) > 0 {
		p.printf("\nSubscriptions: %s\n", strings.Join(a.Subscriptions, ", "))
	}
	if len(a.More) > 0 {
		p.printf("There is more than is shown: %s.\n", strings.ReplaceAll(strings.Join(a.More, ", "), "_", " "))
	}
}

func (p *program) customersLink(ask func() client) *cobra.Command {
	var why reason
	command, path := question{use: "link <customer> <uid>", short: "Link a customer to a user, and move what guests' orders left to that user", path: customerPath}.command()
	command.Args = cobra.ExactArgs(2)
	command.RunE = func(command *cobra.Command, args []string) error {
		at, _ := url.Parse(path(command, args[:1])) // its parts are escaped
		page := at.Query()
		var before customers.State
		if err := ask().get(command.Context(), at.EscapedPath()+"/preview?"+page.Encode(), &before); err != nil {
			return err
		}
		p.printCustomer(before)
		if before.UID != "" && before.UID != args[1] {
			p.printf("It would be linked to %s from now on. What was credited to %s stays there.\n", args[1], before.UID)
		}
		p.printf("%d points would move from %s to %s.\n", before.GuestPoints, before.GuestAccount, args[1])
		if goOn, err := why.confirmed(p, command, before, args[1], "link"); !goOn {
			return err
		}
		link, all := customers.Change{UID: args[1], Why: why.why, Expect: &before.UID}, customers.Linked{}
		for {
			var done customers.Linked
			if err := ask().do(command.Context(), http.MethodPut, at.EscapedPath()+"?"+page.Encode(), link, &done); err != nil {
				return fmt.Errorf("after %d points of %d orders: %w", all.MovedPoints, all.MovedOrders, err)
			}
			done.MovedPoints, done.MovedOrders = done.MovedPoints+all.MovedPoints, done.MovedOrders+all.MovedOrders
			if page.Has("page") {
				done.Before = all.Before
			}
			all = done
			p.printf("moved: %d points of %d orders\n", all.MovedPoints, all.MovedOrders)
			if all.Next == "" {
				break
			}
			link.Expect = &link.UID
			page.Set("page", all.Next)
		}
		p.printf("Customer %s is linked to %s.\n", all.CustomerID, all.UID)
		if all.Left > 0 {
			p.printf("%d points came meanwhile; link once more to move them.\n", all.Left)
		}
		return p.printJSON(all)
	}
	return why.required(command)
}

// changesOf are the columns of changes of one member.
func changesOf(name string) columns[audit.Entry] {
	return columns[audit.Entry]{names: []string{"CHANGED", "HOW", "FROM", "TO", "WHO", "WHY"}, row: func(c audit.Entry) []string {
		return row(when(c.At), c.Action, shownOf(c.Before, name), shownOf(c.After, name), c.Who, c.Why)
	}}
}

// shownOf is a member on one side of a change; empty: that side has none.
func shownOf(side map[string]any, name string) string {
	if side[name] == nil {
		return ""
	}
	return fmt.Sprint(side[name])
}
