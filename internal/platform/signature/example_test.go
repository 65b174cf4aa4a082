package signature_test

import (
	"fmt"
	"net/http"
	"time"

	"billhook/internal/platform/signature"
)

func ExampleVerifier_Verify() {
	now := func() time.Time { return time.Unix(1772445600, 0) }
	signer, _ := signature.NewSigner(signature.PayNow, "a-secret-of-more-than-24-bytes")
	body := []byte(`{"event_type":"ON_ORDER_COMPLETED"}`)
	headers := http.Header{}
	for name, value := range signer.Sign("", body, now()) {
		headers.Set(name, value)
	}

	// Two secrets: the old one is still accepted while senders move to the new.
	verifier, _ := signature.NewVerifier(signature.PayNow,
		[]string{"the-new-secret-of-24-bytes-or-more", "a-secret-of-more-than-24-bytes"}, 5*time.Minute, now)
	fmt.Println(verifier.Verify(headers.Values, body))
	fmt.Println(verifier.Verify(headers.Values, []byte(`{}`)))
	// Output:
	// <nil>
	// signature: does not match
}
