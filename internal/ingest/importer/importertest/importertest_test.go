package importertest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/importer/importertest"
)

func TestTheServersStartAndAnswer(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T){
		"redis": func(t *testing.T) {
			do, _ := importertest.Redis(t)
			require.Equal(t, "OK", do("SET", "a", "b"))
		},
		"rabbitmq": func(t *testing.T) {
			connection, _ := importertest.RabbitMQ(t)
			channel, err := connection.Channel()
			require.NoError(t, err)
			_, err = channel.QueueDeclare("a", true, false, false, false, nil)
			require.NoError(t, err)
		},
		"postgres": func(t *testing.T) {
			connection, _ := importertest.Postgres(t)
			_, err := connection.Exec(t.Context(), "SELECT 1")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask(t)
		})
	}
}
