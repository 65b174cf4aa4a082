package env_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/env"
)

type config struct {
	Port   int        `env:"PORT" envDefault:"8080" about:"where it listens"`
	Other  env.Port   `env:"OTHER" about:"where it listens too"`
	Level  slog.Level `env:"LEVEL" about:"how much it says"`
	Limit  int        `env:"LIMIT" envDefault:"1" about:"how many it takes"`
	Secret env.Secret `env:"SECRET,required" about:"what it signs with"`
	Inner  string
}

func (c config) Check() error {
	if c.Limit > 10 {
		return errors.New("LIMIT is above 10")
	}
	return nil
}

func TestParseReportsEveryMistakeTogetherByVariableAndWithoutTheValue(t *testing.T) {
	t.Parallel()
	values := map[string]string{"PORT": "many", "LIMIT": "11", "OTHER": "65536", "LEVEL": "hunter2"}
	_, err := env.Parse[config](func(name string) string { return values[name] })
	require.ElementsMatch(t, []string{
		"PORT: must be a whole number", "OTHER: must be a port: a number from 0 to 65535", "LEVEL: must be DEBUG, INFO, WARN or ERROR",
		"SECRET: is required", "LIMIT is above 10",
	}, strings.Split(err.Error(), "\n"))
}

func TestAPortIsANumberThatAPortCanHave(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"0": true, "8080": true, "65535": true, "65536": false, "-1": false, "http": false, "8e1": false, "+80": false} {
		var p env.Port
		require.Equal(t, want, p.UnmarshalText([]byte(text)) == nil, text)
	}
}

func TestTheHelpListsEveryVariableOfTheStruct(t *testing.T) {
	t.Parallel()
	help := env.Help{About: "x serves.", Own: env.Variables[config](), Catalog: []env.Variable{{Name: "TARGET_URL", About: "where the target is", Required: true}}}
	for _, arguments := range []string{"--help", "-h", "help"} {
		var out strings.Builder
		asked, err := help.Asked([]string{arguments}, &out)
		require.NoError(t, err)
		require.True(t, asked)
		require.Equal(t, `x serves.

It takes no arguments. Environment variables configure it; in brackets is what one is
where it is not set:

  PORT [8080]
      where it listens

  OTHER
      where it listens too

  LEVEL
      how much it says

  LIMIT [1]
      how many it takes

  SECRET (required)
      what it signs with

The catalog names these, for the queues that run:

  TARGET_URL (required)
      where the target is
`, out.String())
	}
}

func TestAnArgumentThatIsUnknownIsWrongUse(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	asked, err := env.Help{}.Asked(nil, &out)
	require.NoError(t, err)
	require.False(t, asked)
	asked, err = env.Help{}.Asked([]string{"--port=80"}, &out)
	require.True(t, asked)
	require.EqualError(t, err, `unknown argument "--port=80": environment variables configure this program, and --help lists them`)
	var coded interface{ ExitCode() int }
	require.ErrorAs(t, err, &coded)
	require.Equal(t, 2, coded.ExitCode())
	require.Empty(t, out.String())
}

func TestAVariableThatSaysNothingOfItselfIsRefused(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "env: the variable of field Port has no tag that says what it is about", func() {
		env.Variables[struct {
			Port string `env:"PORT"`
		}]()
	})
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
