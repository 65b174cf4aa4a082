package webhooktest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
)

// Baseline is a minimal receiver of PayNow's webhooks, to compare with: it reads the body and checks its
// HMAC. With decode it also decodes the members that crediting an order needs.
func Baseline(secret string, decode bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = io.WriteString(mac, r.Header.Get("PayNow-Timestamp")+".") // a hash takes everything
		_, _ = mac.Write(body)
		signed, err := base64.StdEncoding.DecodeString(r.Header.Get("PayNow-Signature"))
		if err != nil || !hmac.Equal(signed, mac.Sum(nil)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if decode && json.Unmarshal(body, new(order)) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

type order struct {
	EventType string `json:"event_type"`
	EventID   string `json:"event_id"`
	Body      struct {
		ID       string `json:"id"`
		Customer struct {
			ID string `json:"id"`
		} `json:"customer"`
		Checkout struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"checkout"`
		Lines []struct {
			ProductID string `json:"product_id"`
			Quantity  int64  `json:"quantity"`
			Price     int64  `json:"price"`
		} `json:"lines"`
		TotalAmount int64  `json:"total_amount"`
		Currency    string `json:"currency"`
	} `json:"body"`
}
