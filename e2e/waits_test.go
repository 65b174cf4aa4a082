package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// waitingQueues have a place each in which events wait: one handles one event at a time, one has
// dead letters, and one asks for a second person.
const (
	busyQueue    = "sub-plan-change"
	failingQueue = "pay-subscription-update"
	twoEyesQueue = "sub-usage-sync"
)

// waitsCatalog returns the folder of a catalog with those queues.
func waitsCatalog(t *testing.T) string {
	t.Helper()
	// What hangs does so for longer than the test looks.
	return changedCatalog(t, `handler_timeout: "30s"`, `handler_timeout: "55s"`, "  - id: sub-plan-change\n", "  - id: sub-plan-change\n    concurrency: 1\n",
		"  - id: sub-usage-sync\n", "  - id: sub-usage-sync\n    four_eyes: true\n")
}

func TestNothingWaitsUnseen(t *testing.T) {
	t.Parallel()
	s := startEmbeddedOf(t, waitsCatalog(t), busyQueue, failingQueue, twoEyesQueue)
	runCases(t, s, []stackCase{
		{"what waits is found wherever it does", func(t *testing.T, s *stack) { waitsAreSeen(t, s, true) }},
		{"what waits in a paused queue is found", func(t *testing.T, s *stack) {
			pausedIsSeen(t, s, true, func(arguments ...string) string { return terminal(t, s.workerURL, arguments...) })
		}},
	})
}

func TestNothingWaitsUnseenOnGooglesEmulators(t *testing.T) {
	t.Parallel()
	ownProcesses(t)
	folder := waitsCatalog(t)
	c, err := catalog.Load(filepath.Clean(folder))
	require.NoError(t, err)
	queues := []string{busyQueue, failingQueue, twoEyesQueue}
	c, err = c.Only(queues)
	require.NoError(t, err)
	project := "waits-" + uuid.NewString()
	s := startReal(t, e2e.Site{
		Project: project, Provision: e2e.Provisioned(project, c), Queues: queues, Environment: []string{"CATALOG_DIR=" + folder},
	})
	waitsAreSeen(t, s, false)
	pausedIsSeen(t, s, false, withOwnHands(t, s, project, folder))
}

// look is what an operator sees who asks for the queues, the list of events, and one event.
type look struct {
	queues map[string]ops.Queue
	list   []ops.Line
	waits  ops.Elsewhere
}

// say runs a command of the program against the worker, and reads the JSON that it prints.
func (s *stack) say(t *testing.T, answer any, arguments ...string) {
	t.Helper()
	said := terminal(t, s.workerURL, append(arguments, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(said), answer), said)
}

func (s *stack) look(t *testing.T) look {
	t.Helper()
	var queues ops.Queues
	s.say(t, &queues, "queues")
	l := look{queues: map[string]ops.Queue{}}
	for _, q := range queues.Items {
		l.queues[q.ID] = q
	}
	var list struct {
		ops.List[ops.Line]
		Waiting ops.Elsewhere `json:"waiting"`
	}
	s.say(t, &list, "events", "ls", "--limit", "100")
	l.list, l.waits = list.Items, list.Waiting
	return l
}

// line is the event's line in the list, nil where it has none.
func (l look) line(id string) *ops.Line {
	if i := slices.IndexFunc(l.list, func(line ops.Line) bool { return line.EventID == id }); i >= 0 {
		return &l.list[i]
	}
	return nil
}

// inBroker is how many messages the list says are in the broker.
func (l look) inBroker(queue string) int64 {
	for _, in := range l.waits.InBroker {
		if in.Queue == queue {
			return in.Messages
		}
	}
	return 0
}

func (s *stack) waiter(t *testing.T, queue, subscription string) string {
	t.Helper()
	action := map[string]string{busyQueue: "upgrade", failingQueue: "renewal", twoEyesQueue: "usage_sync"}[queue]
	return s.produce(t, queue, action, fmt.Sprintf(`{"subscription_id":%q}`, subscription), "")
}

func (s *stack) story(t *testing.T, event string) (shown ops.Event) {
	t.Helper()
	s.say(t, &shown, "events", "show", event)
	return shown
}

func wheres(of ops.Event) (all []ops.Where) {
	for _, spot := range of.Places {
		all = append(all, spot.Place)
	}
	return all
}

// unknown asks for an event that no document knows: the answer is that of a failure, and says how many
// messages of the queue are in the broker, or that it is not known.
func (s *stack) unknown(t *testing.T, event string, l look, queue string, asked bool) (said string) {
	t.Helper()
	said, err := billhook(t, "events", "show", event, "--server", s.workerURL)
	require.Error(t, err, said)
	held := "how many messages wait in the broker is not known"
	if asked {
		held = fmt.Sprint(queue, " ", l.inBroker(queue))
		require.Positive(t, l.inBroker(queue))
	}
	require.Contains(t, said, held)
	require.Contains(t, said, fmt.Sprintf("jsonPayload.event_id=%q", event), "where the logs tell of it")
	return said
}

// nacked leaves the record that a worker leaves which has nacked an event's message.
func (s *stack) nacked(t *testing.T, queue string) string {
	t.Helper()
	id, now := fmt.Sprintf("waits-%d", s.seq.Add(1)), time.Now().UTC()
	record := dedupe.Record{
		Queue: queue, Tenant: dedupe.DefaultTenant, EventID: id, EventType: "upgrade", Status: dedupe.Failed, PayloadHash: "sha256:00", Attempts: 1, LeaseToken: "t",
		LastError: "callee_down", CreatedAt: now, UpdatedAt: now, NextRetryAt: now.Add(time.Hour), ExpireAt: now.Add(24 * time.Hour),
	}
	_, err := s.store.Commit(t.Context(), []store.Write{store.Create(dedupe.Key(queue, record.Tenant, id), record.Fields())})
	require.NoError(t, err)
	return id
}

// waitsAreSeen puts an event into each place in which one can wait, and finds it again. asked: the
// broker can be asked what it holds.
func waitsAreSeen(t *testing.T, s *stack, asked bool) {
	t.Helper()
	_, err := program() // building it takes longer than a service hangs
	require.NoError(t, err)
	tell := func(id string, modes ...standin.Mode) {
		for _, mode := range modes {
			require.NoError(t, s.service.TellOf(id, mode, map[standin.Mode]int{standin.Refuse: 1, standin.Hang: 100}[mode]))
		}
	}
	named := func(queue string) string { return fmt.Sprint("s-", queue, s.seq.Add(1)) }
	send := func(queue, subscription string, modes ...standin.Mode) string {
		action := map[string]string{busyQueue: "upgrade", failingQueue: "renewal", twoEyesQueue: "usage_sync"}[queue]
		id := fmt.Sprintf("waits-%d", s.seq.Add(1))
		tell(id, modes...)
		s.enqueue(t, queue, id, action, fmt.Sprintf(`{"subscription_id":%q}`, subscription), "")
		return id
	}

	// A dead letter that says what came after it, and one that waits for a second person.
	subscription := named(failingQueue)
	dead := send(failingQueue, subscription, standin.Refuse)
	s.until(t, dead, "dead_lettered")
	letter := s.letter(t, failingQueue, dead)
	s.until(t, send(failingQueue, subscription), "processed")
	require.Contains(t, terminal(t, s.workerURL, "dlq", "show", letter.ID), "later messages of its key: 1 done, 0 dead-lettered, 0 waiting")
	asking := send(twoEyesQueue, named(twoEyesQueue), standin.Refuse)
	s.until(t, asking, "dead_lettered")
	second := s.letter(t, twoEyesQueue, asking)
	var op deadletter.Operation
	require.Equal(t, http.StatusCreated, s.as(t, "ada", http.MethodPost, "/v1/ops/dead-letters/replay", ops.Request{
		Filter: deadletter.Filter{Queue: twoEyesQueue, Item: second.ID}, Why: "the platform is back", Expect: 1,
	}, &op))
	require.Equal(t, deadletter.Waiting, op.Progress)

	// A replay that is under way: the service hangs at its second delivery.
	replayed := send(failingQueue, named(failingQueue), standin.Refuse)
	s.until(t, replayed, "dead_lettered")
	tell(replayed, standin.Hang)
	s.replay(t, s.letter(t, failingQueue, replayed))

	// One is kept until its time, one is committed and not published.
	later := fmt.Sprintf("waits-%d", s.seq.Add(1))
	answer := s.signed(t, "/queues/"+twoEyesQueue+"/messages", fmt.Sprintf(
		`{"deliver_at":%q,"message":{"id":%q,"action":"usage_sync","created_at":"2026-03-01T12:00:00Z","attempts":0,"payload":{"subscription_id":%q}}}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339), later, named(twoEyesQueue)))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	emitted := fmt.Sprintf("waits-%d", s.seq.Add(1))
	batch := lane.NewBatch(time.Now())
	source := lane.Source{Queue: busyQueue, Tenant: dedupe.DefaultTenant, EventID: emitted + "-source", Emits: emitted}
	batch.Add(failingQueue, emitted, contract.Message{Data: []byte(`{}`)}, source)
	_, err = s.store.Commit(t.Context(), batch.Writes()) // as a worker leaves it that is killed after its commit
	require.NoError(t, err)

	// One was nacked, and is delivered again.
	nacked := s.nacked(t, busyQueue)

	// One holds its lease and the queue's only slot, and one waits for the slot.
	leased := send(busyQueue, named(busyQueue), standin.Hang)
	require.Eventually(t, func() bool {
		doc, err := s.store.Get(t.Context(), dedupe.Key(busyQueue, dedupe.DefaultTenant, leased))
		return err == nil && doc.Fields["status"] == string(dedupe.Processing)
	}, patience, pollInterval)
	slotted := send(busyQueue, named(busyQueue))

	var l look
	seen := func() bool {
		l = s.look(t)
		of := func(queue string) ops.Waiting { return l.queues[queue].Waiting }
		return of(twoEyesQueue).Delayed.Count == 1 && of(failingQueue).InReplay.Count == 1 &&
			(!asked || l.inBroker(busyQueue) == 2)
	}
	for end := time.Now().Add(patience); !seen(); e2e.Wait(t.Context(), pollInterval) {
		require.True(t, time.Now().Before(end), terminal(t, s.workerURL, "queues")+terminal(t, s.workerURL, "events", "ls"))
	}

	count := func(n int64) ops.Count { return ops.Count{Count: n} }
	for place, test := range map[string]struct {
		event      string
		queue, all ops.Count // as the list of queues and that of events have them
		status     string    // of the event's line; empty: it has none
		places     []ops.Where
		says       string
	}{
		"until its time": {later, l.queues[twoEyesQueue].Waiting.Delayed, l.waits.Delayed, "", []ops.Where{ops.PlaceDelayed}, "kept until "},
		"in the outbox":  {emitted, l.queues[busyQueue].Waiting.Outbox, l.waits.Outbox, "", []ops.Where{ops.PlaceOutbox}, "in the outbox since "},
		"in a replay": {
			replayed, l.queues[failingQueue].Waiting.InReplay, l.waits.InReplay, "PROCESSING", []ops.Where{ops.PlaceLease, ops.PlaceReplay}, "for the end of the replay of ",
		},
		"for a second person": {
			asking, l.queues[twoEyesQueue].Waiting.ForApproval, l.waits.ForApproval, "DEAD_LETTERED", []ops.Where{ops.PlaceDeadLetter, ops.PlaceApproval}, "dlq approve " + op.ID,
		},
		"as a dead letter":    {dead, l.queues[failingQueue].DeadLetters.Count, count(1), "DEAD_LETTERED", []ops.Where{ops.PlaceDeadLetter}, "for a person, as dead letter " + letter.ID},
		"under a lease":       {leased, l.queues[busyQueue].Events[dedupe.Processing], count(1), "PROCESSING", []ops.Where{ops.PlaceLease}, "with a worker since "},
		"for its next push":   {nacked, l.queues[busyQueue].Events[dedupe.Failed], count(1), "FAILED", []ops.Where{ops.PlaceBroker}, "in the broker; its next attempt is due at "},
		"for a slot, unknown": {slotted, count(1), count(1), "", nil, ""},
	} {
		require.Equal(t, count(1), test.queue, place)
		require.Equal(t, count(1), test.all, place)
		line := l.line(test.event)
		require.Equal(t, test.status != "", line != nil, place)
		if line != nil {
			require.Equal(t, test.status, string(line.Status), place)
		}
		if test.places == nil {
			s.unknown(t, test.event, l, busyQueue, asked)
			continue
		}
		shown := s.story(t, test.event)
		require.Equal(t, cmp.Or(test.status, string(ops.Waits)), string(shown.Status), place)
		require.Equal(t, test.places, wheres(shown), place)
		require.Contains(t, terminal(t, s.workerURL, "events", "show", test.event), test.says, place)
		if test.event != emitted && test.event != nacked {
			require.Equal(t, ops.StepReceived, shown.History[0].What, "%s: it came through the door", place)
		}
	}
	require.Equal(t, letter.ID, s.letter(t, failingQueue, dead).ID)
	if asked {
		require.GreaterOrEqual(t, *l.queues[busyQueue].Waiting.Unacknowledged, int64(2), "the leased one, and the one for the slot")
		require.NotNil(t, l.queues[busyQueue].Waiting.OldestUnackedSeconds)
		require.Empty(t, l.waits.Unknown)
	} else {
		require.Nil(t, l.queues[busyQueue].Waiting.Unacknowledged, "Google's emulator cannot be asked, and that is not 0")
		require.Contains(t, l.waits.Unknown, busyQueue)
	}
	text := terminal(t, s.workerURL, "events", "ls")
	require.Contains(t, text, "1        for approval")
}

// pausedIsSeen: what is published to a paused queue waits in the broker, and nowhere else. run runs a
// command as somebody who may pause it.
func pausedIsSeen(t *testing.T, s *stack, asked bool, run func(arguments ...string) string) {
	t.Helper()
	require.Contains(t, run("queues", "pause", twoEyesQueue, "--why", "the platform is moved"), "It pushes nothing.")
	before := s.look(t).inBroker(twoEyesQueue)
	id := s.waiter(t, twoEyesQueue, "paused")
	l := s.look(t)
	if asked {
		require.Equal(t, before+1, l.inBroker(twoEyesQueue))
		require.Equal(t, before+1, *l.queues[twoEyesQueue].Waiting.Unacknowledged)
	}
	require.Equal(t, "local:ada", l.queues[twoEyesQueue].Paused.Who)
	require.Nil(t, l.line(id), "no worker has been given it")
	_, err := s.store.Get(t.Context(), dedupe.Key(twoEyesQueue, dedupe.DefaultTenant, id))
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Contains(t, s.unknown(t, id, l, twoEyesQueue, asked), "Paused: "+twoEyesQueue+".")
	require.Equal(t, []ops.Where{ops.PlaceBroker, ops.PlacePaused}, wheres(s.story(t, s.nacked(t, twoEyesQueue))), "of one that was tried before")

	require.Contains(t, run("queues", "resume", twoEyesQueue, "--why", "it stands again"), "It pushes.")
	s.until(t, id, "processed")
	shown := s.story(t, id)
	require.Empty(t, shown.Places)
	require.Equal(t, []ops.What{ops.StepReceived, ops.StepPublished, ops.StepTried}, []ops.What{shown.History[0].What, shown.History[1].What, shown.History[2].What})
}
