package deadletters

import "strings"

// Who can mend a cause.
const (
	sender  = "the sender"         // of the event: a provider or a producer
	callee  = "the called service" // which the target of the queue is
	setup   = "the setup"          // the catalog, the products, a secret, a grant
	program = "Billhook"           // a bug, or a document that was changed past it
	nobody  = "nobody"             // it waits, and goes on by itself
)

// cause says of a reason what happened, who can mend it, and what to do. %s is the target, %c the code of its answer.
type cause struct{ what, fault, do string }

// What to do about several of them.
const (
	itself      = "Nothing: it is tried again by itself."
	whenWell    = "Replay it when the service is well."
	askOwner    = "Ask its owner what became of it, then replay it or complete it by hand."
	whole       = "Its sender sends it again, whole, under a new id; discard this one."
	newID       = "Its sender corrects it under a new id; discard this one."
	sameID      = "Its sender corrects it under the same event id."
	putBack     = "Find out who writes to the store; put the document back, then replay it."
	report      = "Report it with the event's id. Replay it after a new release."
	firstStands = "The first stands. Its sender sends the other under a new id; discard this one."
	resent      = "Its sender mends it and sends it again, under the same id; discard this one."
	discard     = "Discard it."
)

// causes has each reason, or what begins it. docs/reference/reasons.md prints it.
var causes = map[string]cause{
	// What a called service has answered, and what holds its requests back.
	"callee_failed_":     {"%s answered %c", callee, whenWell},
	"callee_unreachable": {"%s could not be reached", callee, whenWell},
	"callee_busy_": {
		"%s was too busy and answered %c", callee,
		"Replay it when the service is well, at a low rate.",
	},
	"callee_timeout_": {"%s did not answer in time", callee, whenWell},
	"callee_unauthorized_": {
		"%s did not take our secret and answered %c", setup,
		"Give both sides the same secret, then replay it.",
	},
	"callee_unclear_": {"%s answered %c, which says neither yes nor no", callee, askOwner},
	"callee_answer_":  {"The answer of %s cannot be read", callee, askOwner},
	"callee_refused_": {
		"%s refused it with %c", callee,
		"Its answer is the detail. Mend the cause there and replay it, or discard it.",
	},
	"callee_gone_": {"%s answered %c: what it is about is gone", nobody, discard},
	"callee_redirects_": {
		"%s has moved and answered %c", setup,
		"Give the target its new address, then replay it.",
	},
	"callee_rate":    {"The target's rate_per_second holds it back", nobody, itself},
	"callee_crowded": {"The target has as many requests under way as its concurrency allows", nobody, itself},
	"callee_resting": {
		"%s failed too often in a row, and its breaker leaves it alone for a while", callee,
		itself,
	},
	"batch_unanswered":   {"A batch ended without an answer for this event", program, itself},
	"body_expected":      {"The event has no data that could be posted", sender, whole},
	"body_not_encodable": {"The data cannot be written as JSON", sender, whole},
	"document_":          {"The event has no document that could be indexed", sender, whole},
	"key_invalid": {
		"The event's key has the wrong form for a header", program,
		"Report it: the key is made here.",
	},
	"gateway_": {
		"The answer of %s settles nothing", callee,
		"Money may have moved: look there first. A replay asks it first, too.",
	},
	"gateway_answer_of_": {
		"%s has another subscription, payment or amount under our key", callee,
		"Money may have moved, for somebody else: look there before a replay.",
	},
	"refund_declined": {
		"%s refused the refund", callee,
		"Nothing moved. Mend the cause there, then send a new message with a new id.",
	},
	"refund_under_way": {
		"Another refund of the payment has no known outcome", nobody,
		"Replay the other one first: billhook refunds show <payment> names it.",
	},
	"refunded_otherwise": {
		"The payment was refunded with another amount", sender,
		"Look whether anything is still owed, then discard it.",
	},
	"refund_lost": {
		"The refund was reserved, and its document is gone", program,
		"Find out who writes to the store. Look at the gateway before a replay.",
	},
	"refund_unreadable": {"The stored refund cannot be read", program, putBack},
	"two_phase_": {
		"The gateway refunded what it had refused before", callee,
		"Compare both records. Complete it by hand if the money has moved.",
	},
	"subscription_id_missing": {"It names no subscription; no money moved", sender, whole},
	"payment_id_missing":      {"It names no payment; no money moved", sender, whole},

	// Points and products.
	"unknown_product": {
		"A product is not known here", setup,
		"Say what the product is worth: billhook products set <product>. Then replay it.",
	},
	"product_broken": {
		"The stored product cannot be read", program,
		"Write it anew: billhook products set <product>. Then replay it.",
	},
	"order_credited_": {
		"Its order was credited before, with other points or to another account", sender,
		"The first credit stands. Compare the two, then discard it.",
	},
	"order_total_unknown": {
		"The order's total is not known, so a part of it cannot be taken back", sender,
		"Reverse it by hand, then complete it.",
	},
	"currency_mismatch": {
		"The refund names another currency than its order", sender,
		"Look at the provider, then discard it or complete it by hand.",
	},
	"bad_amount":      {"An amount cannot be read", sender, newID},
	"amount_overflow": {"Its amounts are too large to be counted", sender, newID},
	"no_account":      {"It names neither a user nor a customer", sender, "Credit by hand, or discard it."},
	"no_items":        {"The order has no items", sender, discard},
	"no_order":        {"It names no order", sender, discard},
	"no_subscription": {"It names no subscription", sender, discard},
	"event_type_unknown": {
		"No handler is declared for its event type", setup,
		"Declare the type or the handler, deploy, replay it.",
	},

	// Orders.
	"order_not_seen":   {"Its order never came", sender, "Replay it when the order has come, or discard it."},
	"order_created_":   {"Its order exists with other items, another user or another total", sender, firstStands},
	"order_unreadable": {"The stored order or its stock cannot be read", program, putBack},
	"paid_twice": {
		"The order is paid already, by another payment", sender,
		"Give the second payment back, then discard it.",
	},
	"paid_after_cancelled": {
		"The money came after the order was cancelled", nobody,
		"Give the money back or make a new order, then discard it.",
	},
	"illegal_transition": {
		"The order is in a state that does not allow it", sender,
		"Look at the order: billhook orders show <order>. Then discard it.",
	},

	// Books.
	"period_closed": {
		"Its month is closed", sender,
		"Two people open the month again and replay it, or its sender dates it in an open month under a new id.",
	},
	"periods_unknown": {"Which months are closed is not known now", program, itself},
	"occurred_": {
		"Its date is too far from now", sender,
		"Its sender corrects the date under the same event id.",
	},
	"unmapped": {"No rule of the journal takes it", setup, "Write the rule, deploy, replay it."},
	"rule_unfit": {
		"Its declaration lacks what the journal's rule needs", setup,
		"Write the rule or the declaration, deploy, replay it.",
	},
	"amount_":      {"A line of its entry has an amount that must not be", sender, sameID},
	"time_invalid": {"Its time cannot be read", sender, sameID},
	"original_missing": {
		"What it reverses never came", sender,
		"Replay the dead letter of what it reverses first.",
	},
	"original_without_": {"What it reverses made no entry", sender, discard},
	"irreversible":      {"It reverses a reversal", sender, discard},
	"entry_conflict":    {"Its event came again with another payload", sender, firstStands},
	"entry_invalid":     {"The entry that it would make does not balance", program, report},
	"entry_broken": {
		"The stored entry cannot be read", program,
		"See docs/runbooks/books.md, then replay it.",
	},
	"ledger_broken": {
		"The entries of its order contradict each other", program,
		"See docs/runbooks/books.md, then replay it.",
	},

	// Usage, notifications, endpoints.
	"usage_too_late": {
		"Its billing period has been over for longer than grace", sender,
		"Send it as a new event in the running period if it is to be billed; discard this one.",
	},
	"usage_in_the_future": {
		"It occurred too far ahead of our clock", sender,
		"Mend the sender's clock, then replay it.",
	},
	"usage_total_": {
		"The total would be too large to stay exact", sender,
		"Look for a wrong unit; discard it.",
	},
	"usage_time_": {"Its time is in no year from 1 to 9999", sender, "Mend the sender; discard it."},
	"usage_counted_": {
		"It was counted before with another meter, quantity or time", sender,
		"Find out which is right and correct with a new event; discard this one.",
	},
	"usage_of_nothing": {"It names no subscription or no meter", sender, whole},
	"usage_unreadable": {"The stored total or period cannot be read", program, putBack},
	"channels_missing": {
		"No channel is declared for its notification", setup,
		"Add it to catalog/notifications.yaml, deploy, replay it.",
	},
	"user_missing": {"It names nobody to notify", sender, discard},
	"endpoint_unreadable": {
		"The stored endpoint cannot be read", program,
		"Remove the endpoint and register it again.",
	},
	"endpoint_changing": {"Somebody is changing the endpoint", nobody, itself},

	// The message itself.
	"payload_conflict":   {"Its event came again with another payload", sender, firstStands},
	"contract_":          {"The message breaks its contract", sender, resent},
	"attributes_invalid": {"An attribute of the message has the wrong form", sender, resent},
	"body_":              {"The message cannot be read", sender, resent},
	"unexpected_body": {
		"The handler takes another kind of message", setup,
		"Compare the queue's contract with its handler, deploy, replay it.",
	},
	"deliver_at_too_far": {
		"Its time of delivery is more than 30 days ahead", sender,
		"Its sender sends it later; discard this one.",
	},
	"too_large_to_wait": {
		"It has to wait, and is too large to be kept", sender,
		"Replay it. Its sender sends less than 512 KiB.",
	},
	"delivery_attempts_exhausted": {
		"No worker has ended it, however often it was delivered", program,
		"Look at the worker's log, then replay it.",
	},
	"attempts_exhausted": {
		"It used up its attempts; the reason is that of the last failure", nobody,
		"See that reason. It stands in the detail.",
	},

	// Waits.
	"behind_delayed": {"An earlier message of its ordering key waits", nobody, itself},
	"deliver_at":     {"It waits for its time of delivery", nobody, itself},
	"not_due":        {"Its next attempt, or the end of its order's wait, has not come", nobody, itself},
	"lease_held":     {"Another worker has it", nobody, itself},
	"queue_full": {
		"All slots of the queue were in use for two seconds", setup,
		itself + " If it goes on: docs/runbooks/waiting.md.",
	},
	"shutting_down":     {"The instance was shutting down", nobody, itself},
	"canceled":          {"The request was cut off", nobody, itself},
	"contention":        {"Others kept changing the same document", nobody, itself},
	"store_unavailable": {"The database did not answer", nobody, itself},
	"alarm_unavailable": {
		"Cloud Tasks did not take the alarm", setup,
		"Nothing: the next run of release-delayed releases it. If it goes on: billhook admin doctor.",
	},

	// The worker.
	"handler_error": {
		"The handler failed without a reason of its own", program,
		"Read the worker's log at the event's id, then replay it.",
	},
	"handler_panic": {
		"The handler panicked", program,
		"Read the stack in the worker's log. Replay it after a new release.",
	},
	"handler_timeout": {
		"The handler did not end in its time", program,
		"Look for a slow callee or store, then replay it.",
	},
	"handler_without_plan": {
		"A trial cannot show what this handler would do", program,
		"Nothing: it is about the trial alone.",
	},
	"worker_died": {
		"The worker died in an attempt", program,
		"Look at the last lines of that instance and at its memory.",
	},
	"emission_":      {"The handler emitted what the catalog does not allow", program, report},
	"effect_invalid": {"The store refused the effect as malformed", program, report},
	"record_":        {"The event's record cannot be read or written", program, putBack},
	"entry_unreadable": {
		"A stored document was damaged", program,
		"Replay it where it has its message; its payload shows that.",
	},
	"dead_letter_unconfirmed": {"The broker did not confirm the dead letter", nobody, itself},
}

// causeOf finds the longest beginning of a reason that is known; empty where none is.
func causeOf(reason string) (name string) {
	for known := range causes {
		if strings.HasPrefix(reason, known) && len(known) > len(name) {
			name = known
		}
	}
	return name
}

func (k Kept) cause() (what, do string) {
	name := causeOf(k.Reason)
	if name == "" {
		return "It could not be handled: " + k.Reason, "Look at its payload and its event; mend the cause, then replay it."
	}
	target := "The other service"
	if k.Target != "" {
		target = "The " + strings.TrimSuffix(strings.ReplaceAll(k.Target, "-", " "), " service") + " service"
	}
	said := strings.NewReplacer("%s", target, "%c", strings.TrimPrefix(k.Reason, name))
	return said.Replace(causes[name].what), causes[name].do
}
