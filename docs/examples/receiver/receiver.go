// Command receiver says whether a delivery of Billhook is genuine: the body on standard input, its two
// headers as arguments.
//
//	DELIVERY_SIGNING_SECRET=... receiver <X-Webhook-Timestamp> <X-Webhook-Signature> < body
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strconv"
	"time"
)

// genuine reports whether the headers are those of exactly this body, and at most five minutes old.
func genuine(timestamp, signature string, body, secret []byte, now time.Time) bool {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	given, err := hex.DecodeString(signature)
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}

func main() {
	body, err := io.ReadAll(os.Stdin)
	secret := []byte(os.Getenv("DELIVERY_SIGNING_SECRET"))
	if err != nil || len(os.Args) != 3 || !genuine(os.Args[1], os.Args[2], body, secret, time.Now()) {
		os.Exit(1)
	}
}
