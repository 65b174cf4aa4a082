package e2e_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
)

// correctableCatalog returns a folder with a catalog in which PayNow's events expire after an
// hour and may be corrected.
func correctableCatalog(t *testing.T) (folder string) {
	t.Helper()
	return changedCatalog(t, "\n    on_corrected: refuse\n", "\n    on_corrected: accept\n    message_ttl: \"3600s\"\n")
}

var lenientCases = []stackCase{
	{"a replay is processed when the message would have expired", replayPastTTL},
	{"a corrected payload is processed and closes its dead letter", corrected},
	{"a message that keeps the contract closes the dead letter of one that broke it", mended},
}

func TestCorrectionsOnTheEmbeddedStack(t *testing.T) {
	t.Parallel()
	s := startEmbeddedOf(t, correctableCatalog(t))
	runCases(t, s, lenientCases)
}

func TestCorrectionsOnGooglesEmulators(t *testing.T) {
	t.Parallel()
	ownProcesses(t)
	folder := correctableCatalog(t)
	c, err := catalog.Load(folder)
	require.NoError(t, err)
	project := "corrected-" + uuid.NewString()
	s := startReal(t, e2e.Site{Project: project, Provision: e2e.Provisioned(project, c), Environment: []string{"CATALOG_DIR=" + folder}})
	runCases(t, s, lenientCases)
}

// message returns the message of the order as the webhook service publishes it.
func message(t *testing.T, o e2e.Order) contract.Message {
	t.Helper()
	body := &contract.PayNow{EventID: o.EventID, EventType: contract.OrderPaid, Timestamp: "2026-03-02T10:15:00Z", Data: contract.PayNowData{
		Order: &contract.Order{ID: o.OrderID, CustomerID: o.CustomerID},
	}}
	for _, l := range o.Lines {
		body.Data.Order.Items = append(body.Data.Order.Items, contract.Item{ProductID: l.Product, Quantity: l.Quantity})
	}
	data, err := contract.Of(body).Append(nil)
	require.NoError(t, err)
	return contract.Message{Data: data, OrderingKey: o.UID, Attributes: map[string]string{
		contract.AttrEventID: o.EventID, contract.AttrEventType: contract.OrderPaid, contract.AttrOrderingKey: o.UID, "uid": o.UID,
		contract.AttrContract: contract.PayNowV1, "order_id": o.OrderID, "paynow_customer_id": o.CustomerID,
	}}
}

// replayPastTTL: a message of two hours ago expires, and its dead letter is replayed.
func replayPastTTL(t *testing.T, s *stack) {
	o := s.newOrder()
	old := message(t, o)
	old.Attributes[contract.AttrFirstPublished] = time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
	_, err := s.publish(t.Context(), e2e.Queue, old)
	require.NoError(t, err)
	s.until(t, o.EventID, "expired")

	letter := old
	letter.OrderingKey, letter.Attributes = "", maps.Clone(old.Attributes)
	letter.Attributes[deadletter.AttrReason], letter.Attributes[deadletter.AttrStatus] = "unknown_product", "422"
	letter.Attributes[deadletter.AttrSourceMessageID] = uuid.NewString()
	_, err = s.publish(t.Context(), e2e.Queue+"-dlq", letter)
	require.NoError(t, err)
	s.replay(t, s.letter(t, e2e.Queue, o.EventID))
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
}

// item waits until the item has the state and returns it.
func (s *stack) item(t *testing.T, id string, state deadletter.State) deadletter.Item {
	t.Helper()
	var found ops.Letter
	require.Eventually(t, func() bool {
		s.ask(t, http.MethodGet, "/v1/ops/dead-letters/"+url.PathEscape(id), nil, &found)
		return found.State == state
	}, patience, 50*time.Millisecond)
	return found.Item
}

// corrected: an order of an unknown product is corrected, and its old dead letter is replayed.
func corrected(t *testing.T, s *stack) {
	o := s.newOrder()
	wrong := o
	wrong.Lines = []e2e.Line{{Product: "700000000000000997", Quantity: 2, Price: 1000}}
	s.accepted(t, wrong.JSON())
	s.until(t, o.EventID, "dead_lettered")
	letter := s.letter(t, e2e.Queue, o.EventID)
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", status(t, s.store, o.EventID))
	item := s.item(t, letter.ID, deadletter.Corrected)
	require.NotEmpty(t, item.CorrectedBy)
	require.NotZero(t, item.Closed)

	var listed ops.DeadLetters
	s.ask(t, http.MethodGet, "/v1/ops/dead-letters?state=corrected&queue="+e2e.Queue+"&event_id="+o.EventID, nil, &listed)
	require.Len(t, listed.Items, 1)
	question, err := json.Marshal(ops.Request{Filter: deadletter.Filter{Queue: e2e.Queue, Item: letter.ID}, Why: "the drill", Expect: 1})
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.workerURL+"/v1/ops/dead-letters/replay", strings.NewReader(string(question)))
	require.NoError(t, err)
	refused, err := e2e.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status)
	require.Contains(t, refused.Body, item.CorrectedBy)

	s.accepted(t, wrong.JSON())
	s.untilReason(t, o.EventID, "corrected_before")
	require.Len(t, s.lettersOf(t, o.EventID), 1)
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
}

// untilReason waits for a delivery of the event with the reason.
func (s *stack) untilReason(t *testing.T, eventID, reason string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, d := range s.log.Deliveries(eventID) {
			if d.Reason == reason {
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond)
}

// mended: a message comes without a quantity, then complete.
func mended(t *testing.T, s *stack) {
	o := s.newOrder()
	broken := o
	broken.Lines = []e2e.Line{{Product: points}}
	_, err := s.publish(t.Context(), e2e.Queue, message(t, broken))
	require.NoError(t, err)
	letter := s.letter(t, e2e.Queue, o.EventID)
	require.Equal(t, "contract_broken", letter.Reason)
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	s.item(t, letter.ID, deadletter.Corrected)
}
