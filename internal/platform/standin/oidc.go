package standin

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Google's tokens are valid for an hour. Each is reused for half of it.
const (
	tokenLife  = time.Hour
	tokenReuse = tokenLife / 2
)

// Issuer stands in for Google's token service. It signs push tokens with a key of its own and
// serves the public key as a JSON Web Key Set. With the keys' URL pointed here, the worker's
// verification runs unchanged. It is safe for concurrent use.
type Issuer struct {
	now  func() time.Time
	key  *rsa.PrivateKey
	kid  string
	keys []byte

	mu     sync.Mutex
	tokens map[[2]string]issued
}

type issued struct {
	token string
	at    time.Time
}

var _ http.Handler = (*Issuer)(nil)

// NewIssuer generates a key and returns an issuer with it. A nil now is the machine's clock.
func NewIssuer(now func() time.Time) (*Issuer, error) {
	if now == nil {
		now = time.Now
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("standin: signing key: %w", err)
	}
	sum := sha256.Sum256(key.N.Bytes())
	kid := hex.EncodeToString(sum[:20])
	keys, err := json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}}})
	if err != nil {
		return nil, fmt.Errorf("standin: key set: %w", err)
	}
	return &Issuer{now: now, key: key, kid: kid, keys: keys, tokens: map[[2]string]issued{}}, nil
}

// Token returns a token for the audience and the account, with the claims of a Pub/Sub push
// token.
func (i *Issuer) Token(audience, email string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, key := i.now(), [2]string{audience, email}
	if last, ok := i.tokens[key]; ok && now.Sub(last.at) < tokenReuse {
		return last.token, nil
	}
	sum := sha256.Sum256([]byte(email))
	subject := new(big.Int).SetBytes(sum[:8]).String() // the id of an account is a number
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": "https://accounts.google.com", "aud": audience, "azp": subject, "sub": subject,
		"email": email, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(tokenLife).Unix(),
	})
	token.Header["kid"] = i.kid
	signed, err := token.SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("standin: signing a token: %w", err)
	}
	i.tokens[key] = issued{token: signed, at: now}
	return signed, nil
}

// Keys returns the JSON Web Key Set.
func (i *Issuer) Keys() []byte { return i.keys }

// ServeHTTP serves the key set.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(i.keys)
}
