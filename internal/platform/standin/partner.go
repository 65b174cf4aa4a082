package standin

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"billhook/internal/pii"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// PartnerPath is where a third party is told of events by Standard Webhooks: the URL of an endpoint
// that is registered for a try.
const PartnerPath = "/partner"

// Trust has the third party check what it is told by the secret of its endpoint, whsec_... .
// Before the first call it refuses everything.
func (r *Receiver) Trust(secret string) error {
	verifier, err := signature.NewVerifier(signature.Standard, []string{secret}, r.tolerance, r.now)
	if err != nil {
		return fmt.Errorf("standin: partner: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partner = []*signature.Verifier{verifier}
	return nil
}

// hook is a request to the third party. The webhook-id is the key of its event.
func (r *Receiver) hook(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	trusted := r.partner
	r.mu.Unlock()
	if len(trusted) == 0 {
		serve.Refuse(http.StatusUnauthorized, "signature", "The third party knows no secret.").Write(w)
		return
	}
	body, problem := readSigned(w, request, trusted...)
	if problem != nil {
		problem.Write(w)
		return
	}
	var given struct {
		Type string `json:"type"`
	}
	id := request.Header.Get("Webhook-Id")
	if json.Unmarshal(body, &given) != nil || given.Type == "" || !pii.ID.Valid(id) {
		serve.Refuse(http.StatusBadRequest, "malformed", "The body is not a webhook's JSON, with a type.").Write(w)
		return
	}
	r.answer(w, request, r.take(Delivery{Path: PartnerPath, Key: id, EventID: id, Action: given.Type, At: r.now()}, sha256.Sum256(body)))
}
