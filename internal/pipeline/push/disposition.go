package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// state is the result of a step: the attempt goes on, has its answer, or cannot handle its message now.
type state string

const (
	goesOn   state = "" // after settle: from the beginning
	answered state = "it is answered"
	recorded state = "its record says what becomes of it"

	unanswered state = "the store did not answer, or the handler does not return"
	uncertain  state = "its effect may have been committed"
	waiting    state = "it comes behind another of its key, or before its time of delivery"
	early      state = "its next attempt is not due yet"
	held       state = "another worker has it"
	failed     state = "it failed"
)

// finding is the result of a step.
type finding struct {
	state   state
	failure error
	means   retry.Verdict // what the failure means here
	attempt int           // which of the event's attempts has failed; 0: none
	due     time.Time     // when the message may be tried again; zero: unknown
	then    disposition
	seen    dedupe.Seen  // what is recorded
	emitted lane.Emitted // the emissions that were committed
	answer  answer
}

// found returns the finding for a failure, with the meaning that its error has.
func found(state state, failure error) finding {
	return finding{state: state, failure: failure, means: retry.Decide(failure)}
}

func storeDown(err error) finding { return found(unanswered, retry.Outage("store_unavailable", err)) }

func records(seen dedupe.Seen) finding { return finding{state: recorded, seen: seen} }

func final(reply answer) finding { return finding{state: answered, answer: reply} }

func (f finding) dueAt(due time.Time) finding { f.due = due; return f }

// again returns the answer that requests another delivery.
func (f finding) again() answer {
	reply := answer{Outcome: retry.Retry, Status: int(f.means.Class), Reason: f.means.Reason}
	reply.cause = cause(f.failure)
	if f.state == unanswered || (f.state == failed && f.means.Counts) {
		reply.Attempt = f.attempt
	}
	return reply
}

// disposition is how a message that is not handled now gets its next attempt.
type disposition string

const (
	resume disposition = "resume" // in the same request
	keep   disposition = "keep"   // from its lane, when it is due
	nack   disposition = "nack"   // by the broker
	bury   disposition = "bury"   // never: it is dead-lettered
)

// rule is a row of the table. The first row of the finding's state whose conditions all hold decides.
type rule struct {
	state state
	when  []condition
	then  disposition
}

type condition struct {
	text  string
	holds func(*situation) bool
}

type situation struct {
	finding
	of              *attempt
	now             time.Time
	next, latest    time.Time     // when the request itself would go on, and until when it may; zero: it cannot
	wait, requested time.Duration // the policy's wait, and the wait that the called service requests
}

var (
	terminal = condition{
		"no other attempt can help (400, 409, 422)", func(s *situation) bool { return s.means.Class.Terminal() },
	}
	otherEvent = condition{
		"it waits for another event, or for its own time", func(s *situation) bool {
			return s.means.Scope == retry.OtherEvent
		},
	}
	everyMessage = condition{
		"all messages share what failed", func(s *situation) bool { return s.means.Scope == retry.EveryMessage },
	}
	unavailable = condition{
		"what it calls is down (503)", func(s *situation) bool { return s.means.Class == retry.Unavailable },
	}
	counts = condition{"the attempt counts", func(s *situation) bool { return s.means.Counts }}
	soon   = condition{"it can go on within 2 s, and be answered in time", func(s *situation) bool {
		return !s.next.IsZero() && !s.next.After(s.latest)
	}}
	notWaited = condition{
		"its request has not just waited for it", func(s *situation) bool { return !s.of.waited },
	}
	noRecords = condition{
		"the queue keeps no records", func(s *situation) bool { return !s.of.queue.Remembers() },
	}
	longerWait = condition{
		"the called service requests a longer wait than the policy's", func(s *situation) bool {
			return s.requested > s.wait
		},
	}
	oneTarget = condition{
		"all messages of the queue go to one target",
		func(s *situation) bool { return s.of.queue.oneTarget },
	}
	brokersWait = condition{"the broker's own wait is the policy's", func(s *situation) bool {
		return s.of.queue.BrokerKeepsTime() && (s.of.number == 0 || s.of.number == s.attempt)
	}}
	// It takes one nack from the budget.
	inBudget = condition{
		"the queue's `nack_budget` has one left", func(s *situation) bool {
			return s.of.queue.nacks.AllowN(s.now, 1)
		},
	}
)

// dispositions is the table of dispositions. A failure that concerns all messages is nacked, which slows the
// subscription down. Any other nack would slow messages that could succeed, so those have a budget.
var dispositions = []rule{
	{unanswered, nil, nack},
	{uncertain, nil, nack},
	{waiting, nil, keep},
	{early, []condition{notWaited, soon}, resume},
	{early, nil, keep},
	{held, []condition{notWaited, soon}, resume},
	{held, []condition{inBudget}, nack},
	{held, nil, keep},
	{failed, []condition{terminal}, bury},
	{failed, []condition{otherEvent}, keep},
	{failed, []condition{everyMessage}, nack},
	{failed, []condition{soon}, resume},
	{failed, []condition{noRecords}, nack}, // to keep a message would cost more than a record
	{failed, []condition{longerWait, counts}, keep},
	{failed, []condition{unavailable, oneTarget}, nack},
	{failed, []condition{longerWait}, keep},
	{failed, []condition{brokersWait, inBudget}, nack},
	{failed, nil, keep},
}

// unperformed returns the finding after a failure of the handler or, if unknown, of the commit. over: the
// attempt's deadline or its caller ended it.
func (a *attempt) unperformed(ctx context.Context, err, over error, unknown bool) finding {
	f := found(failed, err)
	f.attempt = a.run.Attempt()
	if over != nil && !f.means.Class.Terminal() && (!a.leased() || !unknown) {
		f.means = retry.Decide(over) // whatever error the handler or the store returned
	}
	one := f.means.Scope == retry.OneMessage
	switch {
	case a.leased() && errors.Is(err, errAbandoned):
		// It still runs and cannot be stopped: no other attempt may begin until the lease ends.
		a.log.LogAttrs(ctx, slog.LevelError, "handler does not return")
		f.state = unanswered
	case a.leased() && unknown && !f.means.Class.Terminal() && (f.means.Counts || !one):
		f.state = unanswered // Reconcile is called after the lease
	case a.leased(), f.means.Class.Terminal(), f.means.Counts, f.means.Scope == retry.OtherEvent:
	case over != nil, !one:
		f.state = uncertain
	default:
		f.state = held
	}
	return f
}

// The reasons of answers without an attempt.
const (
	processedBefore    = "processed_before"     // its event is done
	deadLetteredBefore = "dead_lettered_before" // its event has a dead letter
	correctedBefore    = "corrected_before"     // its event is done with another payload
	delayedBefore      = "delayed_before"       // it is kept for its next attempt, and this is another copy
	notBound           = "not_bound"            // the queue takes no message of its routing key
	tooOld             = "message_ttl"          // it is older than its queue's message_ttl
)

// read turns what is recorded into the answer, or into why the message is not handled.
func (a *attempt) read(f finding) finding {
	run, made, reply := a.run, &a.run.Record, answer{Outcome: retry.Duplicate, Status: http.StatusNoContent}
	switch f.seen {
	case dedupe.Own:
		reply.Outcome, reply.Status = retry.Processed, http.StatusOK
		if run.Superseded() {
			reply.Outcome, reply.Status = retry.Superseded, http.StatusNoContent
		}
		reply.Reason, reply.result, reply.Ref, reply.Attempt = made.Result, made.Result, made.Ref, run.Attempt()
		reply.next.due, reply.next.relay = f.emitted.Due, f.emitted.Lanes
	case dedupe.Done:
		reply.Reason, reply.result, reply.Ref = processedBefore, made.Result, made.Ref
	case dedupe.Gone:
		reply.Reason = deadLetteredBefore
		// Else the dead letter of the replay itself has yet to arrive.
		own := a.message.Attributes[deadletter.AttrReplayOf]
		reply.next.reopen = a.broken == nil && !slices.Contains(run.Found.DeadLetters, own)
	case dedupe.Replaced:
		reply.Reason = correctedBefore
	case dedupe.Waiting:
		// A copy was kept, and its acknowledgement was lost: the next message of the key may follow at once.
		reply.Reason, reply.next.hold = delayedBefore, a.mayMissLane()
	case dedupe.Differs:
		// The conflict has a record of its own, so that its redelivery is a duplicate.
		run.Conflict()
		return found(failed, retry.Conflicting("payload_conflict", nil))
	case dedupe.Early:
		return found(early, retry.Busy("not_due", nil)).dueAt(run.Due())
	default: // by another worker, or waiting for its next delivery
		return found(held, retry.Busy("lease_held", nil)).dueAt(run.Due())
	}
	return final(reply)
}

const (
	maxResume = 2 * time.Second // how long a request waits for the next attempt of its message
	nextLook  = time.Second     // when it tries a message again that another worker has
)

// exhausted makes the failure of an event's last attempt a terminal one.
func (f finding) exhausted(allowed int) finding {
	if !f.means.Class.Terminal() && f.means.Counts && f.attempt >= allowed {
		f.failure = retry.Exhausted(f.means, f.failure)
		f.means = retry.Decide(f.failure)
	}
	return f
}

// dispose finds the disposition in the table, and when the message is due again.
func (a *attempt) dispose(f finding) finding {
	if f.state == failed {
		f = f.exhausted(a.policy.MaxAttempts)
	}
	in := situation{finding: f, of: a, now: a.config.Now(), next: f.due}
	if !a.Draining() { // the next attempt has to be answered before the ack deadline
		patience := a.queue.AckDeadline - a.queue.SlotWait - a.policy.Timeout - bookkeeping - 1
		in.latest = a.received.Add(min(maxResume, patience))
	}
	switch backoff := a.policy.Backoff; f.state {
	case held:
		if in.next = a.received.Add(nextLook); !in.next.After(in.now) {
			in.next = time.Time{}
		}
		// Not much later than the broker's next delivery: the other worker may finish before its lease ends.
		if late := in.now.Add(max(backoff.Wait(1, 0), nextLook)); in.due.IsZero() || in.due.After(late) {
			in.due = late
		}
	case failed:
		in.wait, in.requested = backoff.Wait(f.attempt, a.config.Dice()), retry.RequestedWait(f.failure)
		in.due = in.now.Add(max(in.wait, in.requested))
		in.next = in.due
	default:
	}
	fails := func(c condition) bool { return !c.holds(&in) }
	row := slices.IndexFunc(dispositions, func(r rule) bool {
		return r.state == f.state && !slices.ContainsFunc(r.when, fails)
	})
	f.then, f.due = dispositions[row].then, in.due
	switch {
	case f.then == resume:
		f.due = in.next
	case f.then == nack && !f.means.Counts: // nothing was tried, so the broker's next delivery may be
		f.due = time.Time{}
	}
	return f
}

// workerDied is the failure of an event whose last attempt ended with its worker.
var workerDied = retry.Exhausted(retry.Verdict{Reason: dedupe.Begun}, nil)

// detail returns the text that a dead letter has in addition to its reason. Its sources are our own errors,
// which contain codes, field paths and ids.
func detail(err error) string {
	var invalid *contract.Invalid
	if errors.As(err, &invalid) {
		return invalid.Error()
	}
	var texts []string
	var marked *retry.Error
	for at, first := err, true; errors.As(at, &marked); at, first = marked.Err, false {
		if !first { // the dead letter has the reason of the first
			texts = append(texts, marked.Verdict.Reason)
		}
		if len(marked.Subjects) > 0 {
			texts = append(texts, strings.Join(marked.Subjects, " "))
		}
	}
	if said := retry.Said(err); said != "" {
		texts = append(texts, said)
	}
	return strings.Join(texts, ": ")
}

// cause returns the log's text of a failure in addition to its reason: the detail, and the type of a foreign
// error below it.
func cause(err error) string {
	text, root := detail(err), err
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		root = inner
	}
	if _, ours := errors.AsType[*retry.Error](root); root != nil && !ours {
		text += fmt.Sprintf(" %T", root)
	}
	return strings.TrimSpace(text)
}
