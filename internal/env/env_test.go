package env_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/env"
)

type config struct {
	Port   int        `env:"PORT" envDefault:"8080"`
	Limit  int        `env:"LIMIT" envDefault:"1"`
	Secret env.Secret `env:"SECRET,required"`
}

func (c config) Check() error {
	if c.Limit > 10 {
		return errors.New("LIMIT is above 10")
	}
	return nil
}

func TestParseReportsEveryMistakeTogether(t *testing.T) {
	t.Parallel()
	values := map[string]string{"PORT": "many", "LIMIT": "11"}
	_, err := env.Parse[config](func(name string) string { return values[name] })
	require.ErrorContains(t, err, "Port")
	require.ErrorContains(t, err, "SECRET")
	require.ErrorContains(t, err, "LIMIT is above 10")
}

func TestParseTakesDefaultsForWhatIsUnset(t *testing.T) {
	t.Parallel()
	values := map[string]string{"SECRET": "one,two"}
	got, err := env.Parse[config](func(name string) string { return values[name] })
	require.NoError(t, err)
	require.Equal(t, 8080, got.Port)
	require.Equal(t, []string{"one", "two"}, got.Secret.List())
}

func TestAListOfSecretsMayHaveSpaceAroundEach(t *testing.T) {
	t.Parallel()
	for text, want := range map[env.Secret][]string{
		"": nil, "one": {"one"}, "one, two ": {"one", "two"}, "one\n": {"one"}, "one two,three": {"one two", "three"},
		"one,": {"one", ""}, " ": {""}, // a mistake; the user of the list refuses the empty secret
	} {
		require.Equal(t, want, text.List())
	}
}

func TestASecretPrintsAsRedactedHoweverItIsFormatted(t *testing.T) {
	t.Parallel()
	secret := env.Secret("hunter2hunter2")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", secret, "config", config{Secret: secret})
	asJSON, err := json.Marshal(map[string]any{"secret": secret})
	require.NoError(t, err)
	for _, printed := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%s %q %x %v %+v %#v %d", secret, secret, secret, secret, secret, secret, secret),
		fmt.Sprintf("%+v %#v", config{Secret: secret}, &config{Secret: secret}), log.String(), string(asJSON),
	} {
		require.NotContains(t, printed, "hunter2")
		require.NotContains(t, printed, "68756e746572")
		require.Contains(t, printed, "[redacted]")
	}
	require.Equal(t, "hunter2hunter2", secret.Reveal())
}
