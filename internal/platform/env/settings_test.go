package env_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/env"
)

type shown struct {
	Port     env.Port          `env:"PORT" about:"the port"`
	Level    slog.Level        `env:"LEVEL" about:"the level"`
	Seconds  int               `env:"SECONDS" about:"the time"`
	Queues   []string          `env:"QUEUES" about:"the queues"`
	Pools    map[string]string `env:"POOLS" about:"the pools"`
	Base     string            `env:"BASE" about:"the address"`
	Token    env.Secret        `env:"TOKEN" about:"the token"`
	Unset    env.Secret        `env:"UNSET" about:"no token"`
	Computed string
}

func TestTheSettingsShowEveryVariableAndNoSecret(t *testing.T) {
	t.Parallel()
	config := shown{
		Port: "8081", Level: slog.LevelWarn, Queues: []string{"a", "b"}, Token: "hush-hush-hush", Computed: "x",
		Pools: map[string]string{"b": "https://b.example", "a": "https://ada:hush@a.example"}, Base: "redis://ada:hush@redis.example:6379/1?password=hush",
	}
	named := []env.Variable{
		{Name: "SEARCH_URL", About: "the target"}, {Name: "SEARCH_SECRET", About: "its secret", Secret: true}, {Name: "OTHER_SECRET", About: "another", Secret: true},
	}
	environment := map[string]string{"SEARCH_URL": "https://search.example/v1?key=hush", "SEARCH_SECRET": "hush-hush-hush"}
	settings := env.Settings(config, named, func(name string) string { return environment[name] })
	values := map[string]string{}
	for _, s := range settings {
		require.NotEmpty(t, s.About)
		require.NotContains(t, s.Value, "hush")
		values[s.Name] = s.Value
	}
	require.Equal(t, "PORT", settings[0].Name)
	require.Equal(t, map[string]string{
		"PORT": "8081", "LEVEL": "WARN", "SECONDS": "0", "QUEUES": "a,b", "POOLS": "a=https://[redacted]@a.example,b=https://b.example",
		"BASE": "redis://[redacted]@redis.example:6379/1?[redacted]", "TOKEN": "[redacted]", "UNSET": "",
		"SEARCH_URL": "https://search.example/v1?[redacted]", "SEARCH_SECRET": "[redacted]", "OTHER_SECRET": "",
	}, values)
}

func TestAnAddressThatCannotBeReadIsNotShown(t *testing.T) {
	t.Parallel()
	settings := env.Settings(shown{Base: "https://ada:hu%zzsh@a.example"}, nil, nil)
	require.Equal(t, "[redacted]", settings[5].Value)
}
