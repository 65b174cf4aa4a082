package webhook

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
)

// destination is where a producer sends messages: one queue, or a topic that queues share.
type destination struct {
	// topic is the id of the shared topic; empty: the messages are for the one queue alone.
	topic string
	// queues are the enabled queues that a message may reach.
	queues []catalog.Queue
}

func (s *Service) produce(
	find func(name string) (destination, bool), unknown *serve.Problem,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from := s.sources[catalog.Producers]
		name, err := url.PathUnescape(chi.URLParam(r, "name")) // an alias has colons, which some clients escape
		to, ok := find(name)
		if err != nil || !ok || from == nil {
			s.refuse(w, r, catalog.Producers, unknown)
			return
		}
		s.receive(w, r, from, &to)
	}
}

func (s *Service) queueOf(name string) (destination, bool) {
	q, ok := s.config.Catalog.Queue(name)
	return destination{queues: []catalog.Queue{q}}, ok && q.Enabled
}

func (s *Service) topicOf(name string) (destination, bool) {
	topic, ok := s.config.Catalog.TopicNamed(name)
	to := destination{topic: topic.ID}
	for _, q := range s.config.Catalog.Queues {
		if ok && q.Enabled && q.SharedTopic == topic.ID {
			to.queues = append(to.queues, q)
		}
	}
	return to, len(to.queues) > 0
}

// bound returns the destination's queues that are bound to this routing key.
func (d *destination) bound(routingKey string) []catalog.Queue {
	if d.topic == "" {
		return d.queues
	}
	return slices.DeleteFunc(slices.Clone(d.queues), func(q catalog.Queue) bool {
		return !q.Takes(map[string]string{contract.AttrRoutingKey: routingKey})
	})
}

func (d *destination) formatFor(found string) string {
	if slices.ContainsFunc(d.queues, func(q catalog.Queue) bool { return q.Contract == found }) {
		return found
	}
	return d.queues[0].Contract
}

const (
	maxListed = 100
	inList    = "messages"
	inItem    = "message"
)

// unpack reads one message, one in an item, or a list of items. An error concerns the whole request.
func unpack(body []byte) (events []event, list bool, err error) {
	if _, err := pii.Parse(body); err != nil {
		return nil, false, err
	}
	names, listed, wrapped := 0, jsontext.Value(nil), false
	contract.EachMember(body, func(name string, value jsontext.Value) {
		names++
		switch {
		case name == inList && value.Kind() == '[':
			listed = value
		case name == inItem && value.Kind() == '{':
			wrapped = true
		}
	})
	switch {
	case listed != nil && names > 1:
		return nil, true, contract.Broken("?", "unknown") // its name may hold anything
	case listed != nil:
		var each []jsontext.Value
		if err := json.Unmarshal(listed, &each); err != nil || len(each) == 0 || len(each) > maxListed {
			return nil, true, contract.Broken(inList, "1 to "+strconv.Itoa(maxListed))
		}
		for _, value := range each {
			events = append(events, readItem(value))
		}
		return events, true, nil
	case wrapped:
		return []event{readItem(body)}, false, nil
	default:
		return []event{{raw: body}}, false, nil
	}
}

// readItem does not check the shapes of texts: the check of the message's attributes does.
func readItem(value jsontext.Value) (i event) {
	var broken pii.Dropped
	texts := map[string]*string{
		"routing_key": &i.routingKey, "deliver_at": &i.deliverAt, "priority": &i.priority, "tenant": &i.tenant,
	}
	if value.Kind() != '{' {
		broken.Add("", "object")
	}
	contract.EachMember(value, func(name string, value jsontext.Value) {
		into, isText := texts[name]
		switch kind := value.Kind(); {
		case kind == 'n':
		case name == inItem && kind != '{':
			broken.Add(name, "object")
		case name == inItem:
			i.raw = value
		case isText && kind == '"':
			unquoted, _ := jsontext.AppendUnquote(nil, value)
			*into = string(unquoted)
		case isText:
			broken.Add(name, "text")
		case name == "max_attempts":
			n, err := strconv.ParseInt(string(value), 10, 32)
			if i.maxAttempts = n; err != nil || n < 1 {
				broken.Add(name, "min=1")
			}
		default:
			if _, found := pii.Detect(pii.Code, name); found || !pii.Code.Valid(name) {
				name = "?" // it may hold anything
			}
			broken.Add(name, "unknown")
		}
	})
	if i.raw == nil && broken == nil {
		broken.Add(inItem, "required")
	}
	i.err = invalid(broken)
	return i
}

func invalid(violations pii.Dropped) error {
	if violations == nil {
		return nil
	}
	return &contract.Invalid{Violations: violations}
}

// routed finds the queues that a message reaches. All of them must allow its options.
func (s *Service) routed(i *event, to *destination) ([]catalog.Queue, error) {
	_, eventType := i.body.Identity()
	if to.topic != "" && i.routingKey == "" {
		i.routingKey = eventType
	}
	queues := to.bound(i.routingKey)
	if len(queues) == 0 {
		return nil, contract.Broken(contract.AttrRoutingKey, "unroutable") // no enabled queue is bound to it
	}
	var broken pii.Dropped
	most, ttl := 0, time.Duration(0)
	for _, q := range queues {
		if q.Contract != i.body.Format() {
			return nil, errUnsupported
		}
		h, handled := q.Handler(eventType)
		if !handled {
			return nil, contract.Broken(i.body.TypePath(), "not_of_queue")
		}
		most = max(most, h.MaxAttempts)
		if q.MessageTTL > 0 && (ttl == 0 || q.MessageTTL < ttl) {
			ttl = q.MessageTTL
		}
		if i.priority != "" && i.priority != q.Priority && broken == nil {
			broken.Add(contract.AttrPriority, "not_of_queue")
		}
	}
	if i.maxAttempts > int64(most) {
		broken.Add(contract.AttrMaxAttempts, "max="+strconv.Itoa(most))
	}
	if i.deliverAt != "" {
		i.deliverAt = pii.InUTC(i.deliverAt)
		at, err := time.Parse(time.RFC3339Nano, i.deliverAt)
		switch ahead := at.Sub(s.config.Now()); {
		case err != nil || !pii.Time.Valid(i.deliverAt):
			broken.Add(contract.AttrDeliverAt, pii.Time.Name())
		case ahead > contract.MaxAhead:
			broken.Add(contract.AttrDeliverAt, "too_far")
		case ttl > 0 && ahead > ttl:
			broken.Add(contract.AttrDeliverAt, "beyond_message_ttl")
		}
	}
	return queues, invalid(broken)
}

func (e *event) tenantID() string { return cmp.Or(e.tenant, contract.DefaultTenant) }

// workers is how many messages of one list are prepared, or published, at once.
const workers = 16

var (
	errHeldUp = refusals.Add(http.StatusServiceUnavailable, "key_held_up", "An earlier message of the list "+
		"may share its ordering key and was not taken; send both again, in order.", 5)
	errPanicked = refusals.Add(http.StatusInternalServerError, "internal",
		"An internal error. The message may have been accepted; send it again.", 0)
)

// receiveAll answers a list. If one must be sent again, later messages that would overtake it are held back.
func (s *Service) receiveAll(
	w http.ResponseWriter, r *http.Request, from *source, to *destination, account string, events []event,
) {
	started := s.config.Now()
	outcomes := make([]outcome, len(events))
	for i := range outcomes {
		outcomes[i] = outcome{
			source: from.Name, account: account, started: started, bytes: len(events[i].raw), item: i + 1,
		}
	}
	s.atOnce(r.Context(), len(events), func(ctx context.Context, i int) {
		b := s.buffers.Get().(*buffers)
		defer s.release(b)
		if err := s.prepare(ctx, from, to, &events[i], b, &outcomes[i]); err != nil {
			outcomes[i].refuse(err)
		}
	})
	lines := inLines(events, outcomes)
	s.atOnce(r.Context(), len(lines), func(ctx context.Context, line int) {
		held := false
		for _, i := range lines[line] {
			o := &outcomes[i]
			if held {
				o.refuse(errHeldUp)
				continue
			}
			if err := s.publish(ctx, from, &events[i], o); err != nil {
				o.refuse(err)
			}
			held = o.again()
		}
	})
	answers := make([]result, len(events))
	for i := range outcomes {
		o := &outcomes[i]
		if o.Status == 0 {
			o.refuse(errPanicked)
		}
		answers[i] = o.answer()
		answers[i].Status = o.Status
		s.record(r.Context(), o)
	}
	serve.WriteJSON(w, http.StatusOK, map[string]any{"results": answers})
}

// atOnce calls f concurrently with each number below n. A panic ends only its own call.
func (s *Service) atOnce(ctx context.Context, n int, f func(ctx context.Context, i int)) {
	ctx, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error {
			defer func() {
				if value := recover(); value != nil {
					s.config.Log.LogAttrs(ctx, slog.LevelError, "panic", slog.String("type", fmt.Sprintf("%T", value)),
						slog.String("stack", string(debug.Stack())))
				}
			}()
			f(ctx, i)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

// inLines groups the positions of the messages that can be published, one line for each ordering key. After a
// message of unknown key it holds back all others, which may have the same key.
func inLines(events []event, outcomes []outcome) (lines [][]int) {
	of, held := map[string]int{}, false
	for i := range events {
		o := &outcomes[i]
		switch {
		case o.Problem != nil:
			held = held || o.again()
		case held:
			o.refuse(errHeldUp)
		case events[i].topic == "": // it panicked
			held = true
		default:
			key := events[i].message.OrderingKey
			line, known := of[key]
			if !known || key == "" {
				line = len(lines)
				of[key], lines = line, append(lines, nil)
			}
			lines[line] = append(lines[line], i)
		}
	}
	return lines
}

// again reports whether the sender has to send the message again.
func (o *outcome) again() bool {
	return o.Status == http.StatusTooManyRequests || o.Status >= http.StatusInternalServerError
}
