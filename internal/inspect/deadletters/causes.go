package deadletters

import "strings"

// table has the causes by who can fix them. After a line with what to do come reasons, or their prefixes,
// with what happened: %s is the target, %c the code of its answer. docs/reference/reasons.md prints it.
var table = map[string]string{
	// a provider or a producer
	"the sender": `
Its sender sends it again, whole, under a new id; discard this one.
	body_expected: The event has no data that could be posted
	body_not_encodable: The data cannot be written as JSON
	document_: The event has no document that could be indexed
	subscription_id_missing: It names no subscription; no money moved
	payment_id_missing: It names no payment; no money moved
	usage_of_nothing: It names no subscription or no meter
Look whether anything is still owed, then discard it.
	refunded_otherwise: The payment was refunded with another amount
The first credit stands. Compare the two, then discard it.
	order_credited_: Its order was credited before, with other points or to another account
Reverse it by hand, then complete it.
	order_total_unknown: The order's total is not known, so a part of it cannot be taken back
Look at the provider, then discard it or complete it by hand.
	currency_mismatch: The refund names another currency than its order
Its sender corrects it under a new id; discard this one.
	bad_amount: An amount cannot be read
	amount_overflow: Its amounts are too large to be counted
Credit by hand, or discard it.
	no_account: It names neither a user nor a customer
Discard it.
	no_items: The order has no items
	no_order: It names no order
	no_subscription: It names no subscription
	original_without_: What it reverses made no entry
	irreversible: It reverses a reversal
	user_missing: It names nobody to notify
Replay it when the order has come, or discard it.
	order_not_seen: Its order never came
The first stands. Its sender sends the other under a new id; discard this one.
	order_created_: Its order exists with other items, another user or another total
	entry_conflict: Its event came again with another payload
	payload_conflict: Its event came again with another payload
Give the second payment back, then discard it.
	paid_twice: The order is paid already, by another payment
Look at the order: billhook orders show <order>. Then discard it.
	illegal_transition: The order is in a state that does not allow it
Two people open the month again and replay it, or its sender dates it in an open month under a new id.
	period_closed: Its month is closed
Its sender corrects the date under the same event id.
	occurred_: Its date is too far from now
Its sender corrects it under the same event id.
	amount_: A line of its entry has an amount that must not be
	time_invalid: Its time cannot be read
Replay the dead letter of what it reverses first.
	original_missing: What it reverses never came
Send it as a new event in the running period if it is to be billed; discard this one.
	usage_too_late: Its billing period has been over for longer than grace
Mend the sender's clock, then replay it.
	usage_in_the_future: It occurred too far ahead of our clock
Look for a wrong unit; discard it.
	usage_total_: The total would be too large to stay exact
Mend the sender; discard it.
	usage_time_: Its time is in no year from 1 to 9999
Find out which is right and correct with a new event; discard this one.
	usage_counted_: It was counted before with another meter, quantity or time
Its sender mends it and sends it again, under the same id; discard this one.
	contract_: The message breaks its contract
	attributes_invalid: An attribute of the message has the wrong form
	body_: The message cannot be read
Its sender sends it later; discard this one.
	deliver_at_too_far: Its time of delivery is more than 30 days ahead
Replay it. Its sender sends less than 512 KiB.
	too_large_to_wait: It has to wait, and is too large to be kept`,
	// the target of the queue
	"the called service": `
Replay it when the service is well.
	callee_failed_: %s answered %c
	callee_unreachable: %s could not be reached
	callee_timeout_: %s did not answer in time
Replay it when the service is well, at a low rate.
	callee_busy_: %s was too busy and answered %c
Ask its owner what became of it, then replay it or complete it by hand.
	callee_unclear_: %s answered %c, which says neither yes nor no
	callee_answer_: The answer of %s cannot be read
Its answer is the detail. Mend the cause there and replay it, or discard it.
	callee_refused_: %s refused it with %c
Nothing: it is tried again by itself.
	callee_resting: %s failed too often in a row, and its breaker leaves it alone for a while
Money may have moved: look there first. A replay asks it first, too.
	gateway_: The answer of %s settles nothing
Money may have moved, for somebody else: look there before a replay.
	gateway_answer_of_: %s has another subscription, payment or amount under our key
Nothing moved. Mend the cause there, then send a new message with a new id.
	refund_declined: %s refused the refund
Compare both records. Complete it by hand if the money has moved.
	two_phase_: The gateway refunded what it had refused before`,
	// the catalog, the products, a secret, a grant
	"the setup": `
Give both sides the same secret, then replay it.
	callee_unauthorized_: %s did not take our secret and answered %c
Give the target its new address, then replay it.
	callee_redirects_: %s has moved and answered %c
Say what the product is worth: billhook products set <product>. Then replay it.
	unknown_product: A product is not known here
Declare the type or the handler, deploy, replay it.
	event_type_unknown: No handler is declared for its event type
Write the rule, deploy, replay it.
	unmapped: No rule of the journal takes it
Write the rule or the declaration, deploy, replay it.
	rule_unfit: Its declaration lacks what the journal's rule needs
Add it to catalog/notifications.yaml, deploy, replay it.
	channels_missing: No channel is declared for its notification
Compare the queue's contract with its handler, deploy, replay it.
	unexpected_body: The handler takes another kind of message
Nothing: it is tried again by itself. If it goes on: docs/runbooks/waiting.md.
	queue_full: All slots of the queue were in use for all of slot_wait
Nothing: the next run of release-delayed releases it. If it goes on: billhook admin doctor.
	alarm_unavailable: Cloud Tasks did not take the alarm`,
	// a bug, or a document that something else has changed
	"Billhook": `
Nothing: it is tried again by itself.
	batch_unanswered: A batch ended without an answer for this event
	periods_unknown: Which months are closed is not known now
Report it: the key is made here.
	key_invalid: The event's key has the wrong form for a header
Find out who writes to the store. Look at the gateway before a replay.
	refund_lost: The refund was reserved, and its document is gone
Find out who writes to the store; put the document back, then replay it.
	refund_unreadable: The stored refund cannot be read
	order_unreadable: The stored order or its stock cannot be read
	usage_unreadable: The stored total or period cannot be read
	record_: The event's record cannot be read or written
Write it anew: billhook products set <product>. Then replay it.
	product_broken: The stored product cannot be read
Report it with the event's id. Replay it after a new release.
	entry_invalid: The entry that it would make does not balance
	emission_: The handler emitted what the catalog does not allow
	effect_invalid: The store refused the effect as malformed
See docs/runbooks/books.md, then replay it.
	entry_broken: The stored entry cannot be read
	ledger_broken: The entries of its order contradict each other
Remove the endpoint and register it again.
	endpoint_unreadable: The stored endpoint cannot be read
Look at the worker's log, then replay it.
	delivery_attempts_exhausted: No worker has ended it, however often it was delivered
Read the worker's log at the event's id, then replay it.
	handler_error: The handler failed without a reason of its own
Read the stack in the worker's log. Replay it after a new release.
	handler_panic: The handler panicked
Look for a slow callee or store, then replay it.
	handler_timeout: The handler did not end in its time
Nothing: it is about the trial alone.
	handler_without_plan: A trial cannot show what this handler would do
Look at the last lines of that instance and at its memory.
	worker_died: The worker died in an attempt
Replay it where it has its message; its payload shows that.
	entry_unreadable: A stored document was damaged`,
	// it waits, and continues by itself
	"nobody": `
Discard it.
	callee_gone_: %s answered %c: what it is about is gone
Nothing: it is tried again by itself.
	callee_rate: The target's rate_per_second holds it back
	callee_crowded: The target has as many requests under way as its concurrency allows
	endpoint_changing: Somebody is changing the endpoint
	behind_delayed: An earlier message of its ordering key waits
	deliver_at: It waits for its time of delivery
	not_due: Its next attempt, or the end of its order's wait, has not come
	lease_held: Another worker has it
	shutting_down: The instance was shutting down
	canceled: The request was cut off
	contention: Others kept changing the same document
	store_unavailable: The database did not answer
	dead_letter_unconfirmed: The broker did not confirm the dead letter
Replay the other one first: billhook refunds show <payment> names it.
	refund_under_way: Another refund of the payment has no known outcome
Give the money back or make a new order, then discard it.
	paid_after_cancelled: The money came after the order was cancelled
See that reason. It is in the detail.
	attempts_exhausted: It used up its attempts; the reason is that of the last failure`,
}

// Cause says, for the reasons that begin with Name, what happened, who can fix it, and what to do.
type Cause struct{ Name, What, Fault, Do string }

// Causes returns the causes of all reasons.
func Causes() (all []Cause) {
	for fault, text := range table {
		do := ""
		for line := range strings.SplitSeq(text, "\n") {
			if reason, below := strings.CutPrefix(line, "\t"); below {
				name, what, _ := strings.Cut(reason, ": ")
				all = append(all, Cause{name, what, fault, do})
			} else {
				do = line
			}
		}
	}
	return all
}

// CauseOf returns the cause with the longest Name that the reason begins with; empty: none has such a name.
func CauseOf(reason string) (found Cause) {
	for _, known := range Causes() {
		if strings.HasPrefix(reason, known.Name) && len(known.Name) > len(found.Name) {
			found = known
		}
	}
	return found
}

func (k Kept) cause() (what, do string) {
	known := CauseOf(k.Reason)
	if known.Name == "" {
		return "It could not be handled: " + k.Reason,
			"Look at its payload and its event; mend the cause, then replay it."
	}
	target := "The other service"
	if k.Target != "" {
		target = "The " + strings.TrimSuffix(strings.ReplaceAll(k.Target, "-", " "), " service") + " service"
	}
	said := strings.NewReplacer("%s", target, "%c", strings.TrimPrefix(k.Reason, known.Name))
	return said.Replace(known.What), known.Do
}
