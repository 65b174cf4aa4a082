package env_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/env"
)

type config struct {
	Port   int        `env:"PORT" envDefault:"8080" about:"where it listens"`
	Other  env.Port   `env:"OTHER" about:"where it listens too"`
	Level  slog.Level `env:"LEVEL" about:"which lines it logs"`
	Limit  int        `env:"LIMIT" envDefault:"1" about:"how many it takes"`
	Unset  env.Secret `env:"UNSET" about:"no secret"`
	Base   string     `env:"BASE" about:"the address"`
	Queues []string   `env:"QUEUES" about:"the queues"`
	Secret env.Secret `env:"SECRET,required" about:"what it signs with"`
	Inner  string

	Pools map[string]string `env:"POOLS" about:"the pools"`
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
		"PORT: must be a whole number", "OTHER: must be a port: a number from 0 to 65535",
		"LEVEL: must be DEBUG, INFO, WARN or ERROR", "SECRET: is required", "LIMIT is above 10",
	}, strings.Split(err.Error(), "\n"))
}

func TestValuesAreReadByTheirTypes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"0": true, "8080": true, "65535": true,
		"65536": false, "-1": false, "http": false, "8e1": false, "+80": false,
	} {
		var p env.Port
		require.Equal(t, want, p.UnmarshalText([]byte(text)) == nil, text)
	}
	for text, want := range map[env.Secret][]string{
		"": nil, "one": {"one"}, "one, two ": {"one", "two"}, "one\n": {"one"},
		"one two,three": {"one two", "three"},
		"one,":          {"one", ""}, " ": {""}, // the user of the list refuses an empty secret
	} {
		require.Equal(t, want, text.List())
	}
	values := map[string]string{"SECRET": "one,two"}
	got := filetest.Must(env.Parse[config](func(name string) string { return values[name] }))(t)
	require.Equal(t, 8080, got.Port, "the default")
	require.Equal(t, []string{"one", "two"}, got.Secret.List())
}

func TestTheHelpListsEveryVariableAndOtherArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	help := env.Help{
		About: "x serves.", Own: env.Variables[config](),
		Catalog: []env.Variable{{Name: "TARGET_URL", About: "where the target is", Required: true}},
	}
	for _, argument := range []string{"--help", "-h", "help"} {
		var out strings.Builder
		require.True(t, filetest.Must(help.Asked([]string{argument}, &out))(t))
		require.Regexp(t, `(?s)^x serves\..*
  PORT \[8080\]        where it listens
  OTHER              where it listens too
.*
  SECRET \(required\)  what it signs with
.*
  TARGET_URL \(required\)  where the target is
$`, out.String())
	}
	var out strings.Builder
	require.False(t, filetest.Must(help.Asked(nil, &out))(t))
	asked, err := help.Asked([]string{"--port=80"}, &out)
	require.True(t, asked)
	var coded interface{ ExitCode() int }
	require.ErrorContains(t, err, `unknown argument "--port=80"`)
	require.ErrorAs(t, err, &coded)
	require.Equal(t, 2, coded.ExitCode())
	require.Empty(t, out.String())
}

func TestAVariableWithoutADescriptionPanics(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "env: the variable of field Port has no tag that says what it is about", func() {
		env.Variables[struct {
			Port string `env:"PORT"`
		}]()
	})
}

func TestEveryFormatOfASecretIsRedacted(t *testing.T) {
	t.Parallel()
	secret := env.Secret("hunter2hunter2")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", secret, "config", config{Secret: secret})
	asJSON := filetest.Must(json.Marshal(map[string]any{"secret": secret}))(t)
	for _, printed := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%[1]s %[1]q %[1]x %[1]v %+[1]v %#[1]v %[1]d", secret),
		fmt.Sprintf("%+v %#v", config{Secret: secret}, &config{Secret: secret}), log.String(), string(asJSON),
	} {
		require.NotContains(t, printed, "hunter2")
		require.NotContains(t, printed, "68756e746572")
		require.Contains(t, printed, "[redacted]")
	}
}

func TestTheSettingsShowEveryVariableAndNoSecret(t *testing.T) {
	t.Parallel()
	running := config{
		Other: "8081", Level: slog.LevelWarn, Queues: []string{"a", "b"}, Secret: "hush-hush-hush", Inner: "x",
		Pools: map[string]string{"b": "https://b.example", "a": "https://ada:hush@a.example"},
		Base:  "redis://ada:hush@redis.example:6379/1?password=hush",
	}
	named := []env.Variable{
		{Name: "SEARCH_URL", About: "the target"},
		{Name: "SEARCH_SECRET", About: "its secret", Secret: true},
		{Name: "OTHER_SECRET", About: "another", Secret: true},
	}
	environment := map[string]string{
		"SEARCH_URL": "https://search.example/v1?key=hush", "SEARCH_SECRET": "hush-hush-hush",
	}
	settings := env.Settings(running, named, func(name string) string { return environment[name] })
	values := map[string]string{}
	for _, s := range settings {
		require.NotEmpty(t, s.About)
		require.NotContains(t, s.Value, "hush")
		values[s.Name] = s.Value
	}
	require.Equal(t, "PORT", settings[0].Name)
	require.Equal(t, map[string]string{
		"PORT": "0", "OTHER": "8081", "LEVEL": "WARN", "LIMIT": "0", "QUEUES": "a,b",
		"POOLS": "a=https://[redacted]@a.example,b=https://b.example",
		"BASE":  "redis://[redacted]@redis.example:6379/1?[redacted]", "SECRET": "[redacted]", "UNSET": "",
		"SEARCH_URL": "https://search.example/v1?[redacted]", "SEARCH_SECRET": "[redacted]", "OTHER_SECRET": "",
	}, values)

	settings = env.Settings(config{Base: "https://ada:hu%zzsh@a.example"}, nil, nil)
	require.Equal(t, "[redacted]", settings[5].Value, "an address that cannot be read is not shown")
}
