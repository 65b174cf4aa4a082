package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// pushBody is Pub/Sub's wrapped push body. Ids and times are in it under two names each, as in
// production.
type pushBody struct {
	Message struct {
		Attributes   map[string]string `json:"attributes,omitempty"`
		Data         []byte            `json:"data,omitempty"`
		MessageID    string            `json:"messageId"`
		MessageID2   string            `json:"message_id"`
		OrderingKey  string            `json:"orderingKey,omitempty"`
		PublishTime  string            `json:"publishTime"`
		PublishTime2 string            `json:"publish_time"`
	} `json:"message"`
	Subscription string `json:"subscription"`
	// DeliveryAttempt is set with a dead-letter policy only.
	DeliveryAttempt int `json:"deliveryAttempt,omitempty"`
}

// PushBody returns the wrapped body of a push of the message. An attempt of 0 is left out.
func (m Message) PushBody(subscription string, attempt int) ([]byte, error) {
	body := pushBody{Subscription: subscription, DeliveryAttempt: attempt}
	published := m.PublishTime.Format("2006-01-02T15:04:05.000Z07:00")
	body.Message.Attributes, body.Message.Data, body.Message.OrderingKey = m.Attributes, m.Data, m.OrderingKey
	body.Message.MessageID, body.Message.MessageID2 = m.ID, m.ID
	body.Message.PublishTime, body.Message.PublishTime2 = published, published
	return json.Marshal(body)
}

// maxAnswerBytes is how much of an answer is read, so that its connection can be reused. The
// content is ignored.
const maxAnswerBytes = 64 << 10

// send makes one attempt and reports whether the answer acknowledges the message. Without an
// answer by the ack deadline it reports false.
func (s *Simulator) send(sub *subscription, d *delivery, p push) (acked bool) {
	ctx, cancel := context.WithTimeout(s.ctx, sub.AckDeadline)
	defer cancel()

	request, err := s.request(ctx, sub, d, p)
	if err != nil {
		return false
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswerBytes))
	_ = response.Body.Close()
	switch response.StatusCode {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

func (s *Simulator) request(ctx context.Context, sub *subscription, d *delivery, p push) (*http.Request, error) {
	attempt := 0
	if sub.DeadLetterTopic != "" {
		attempt = p.attempt
	}
	encoded, err := d.PushBody("projects/"+s.config.ProjectID+"/subscriptions/"+sub.ID, attempt)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "CloudPubSub-Google")
	if s.config.Token != nil {
		token, err := s.config.Token()
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}
