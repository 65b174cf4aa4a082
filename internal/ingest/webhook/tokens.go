package webhook

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/pii"
)

// Tokens verifies the tokens of accounts that send without a signature, as Cloud Scheduler does.
type Tokens interface {
	// Account returns the e-mail address of an Authorization header's token, which must be for the audience; if
	// there is none, invalid is the reason. An error means that the token cannot be checked now.
	Account(ctx context.Context, audience, authorization string) (email, invalid string, err error)
}

// Accounts are the accounts that may send by a token. The zero value is none.
type Accounts struct {
	Tokens Tokens
	// Audience is the beginning of every token's audience. The path follows, so that a token is for one path.
	Audience string
	// Emails are the addresses of the catalog's accounts, by name.
	Emails map[string]string
}

var (
	errToken = refusals.Add(http.StatusUnauthorized, "token_invalid",
		"The token is not one of Google's for this address, or has expired.", 0)
	errNotAllowed = refusals.Add(http.StatusForbidden, "account_not_allowed",
		"The account may not send here; see the catalog's accounts.", 0)
	errTokenUnknown = refusals.Add(http.StatusServiceUnavailable, "token_unchecked",
		"The token cannot be checked now; send it again.", 5)
)

// identify finds the account of a request's token, if it may send to the destination.
func (s *Service) identify(r *http.Request, to *destination, o *outcome) error {
	email, invalid, err := s.config.Accounts.Tokens.Account(r.Context(),
		s.config.Accounts.Audience+r.URL.RequestURI(), r.Header.Get("Authorization"))
	switch {
	case err != nil:
		o.cause = "keys_unavailable"
		return errTokenUnknown
	case email == "":
		o.cause = invalid
		return errToken
	}
	for name, address := range s.config.Accounts.Emails {
		if strings.EqualFold(address, email) && slices.Contains(s.config.Catalog.Accounts[name],
			cmp.Or(to.topic, to.queues[0].ID)) {
			o.account = name
			return nil
		}
	}
	return errNotAllowed
}

// scheduled gives the messages of a run of a Cloud Scheduler job the run's id and time, so that the same body
// is a new event in the next run, and the same event in a repetition.
func scheduled(r *http.Request, events []event) {
	job, said := r.Header.Get("X-Cloudscheduler-Jobname"), r.Header.Get("X-Cloudscheduler-Scheduletime")
	at, err := time.Parse(time.RFC3339, said)
	if job == "" || err != nil {
		return
	}
	for i := range events {
		id := job + "-" + at.UTC().Format(time.RFC3339)
		if i > 0 {
			id += "-" + strconv.Itoa(i+1)
		}
		if pii.ID.Valid(id) {
			events[i].given = contract.Given{ID: id, At: at}
		}
	}
}
