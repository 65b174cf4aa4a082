// Package examples_test compares the producers' page with the code.
package examples_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/platform/signature"
)

var page = filepath.Join("..", "guides", "produce.md")

func section(t *testing.T, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(filetest.Read(t, page), "\n## "+heading+"\n")
	require.True(t, ok, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func TestThePageDescribesTheWebhookServicesSignature(t *testing.T) {
	t.Parallel()
	cells := map[string]string{}
	rows := regexp.MustCompile("(?m)^\\| ([\\w ]+) \\| `(.+)` \\|$")
	for _, row := range rows.FindAllStringSubmatch(section(t, "The signature"), -1) {
		cells[row[1]] = row[2]
	}
	var seconds int64
	require.NoError(t, filetest.ErrorOf(fmt.Sscan(cells["timestamp"], &seconds)))
	signer := filetest.Must(signature.NewSigner(signature.Generic, cells["secret"]))(t)
	body, at := []byte(cells["body"]), time.Unix(seconds, 0)
	require.Equal(t, map[string]string{
		"X-Webhook-Timestamp": cells["timestamp"], "X-Webhook-Signature": cells["signature without a destination"],
	}, signer.Sign("", body, at))
	require.Equal(t, map[string]string{
		"X-Webhook-Timestamp": cells["timestamp"], "X-Webhook-Destination": cells["destination"],
		"X-Webhook-Signature": cells["signature"],
	}, signer.SignFor(cells["destination"], "", body, at))
}

func TestTheMessagesOfThePageKeepTheirContracts(t *testing.T) {
	t.Parallel()
	c := catalogtest.Shipped()
	seen, blocks := map[string]int{}, regexp.MustCompile("(?s)```json\n(.*?)```")
	for _, block := range blocks.FindAllStringSubmatch(section(t, "What a body is"), -1) {
		format := c.Contracts.Detect(nil, []byte(block[1]))
		body, err := c.Contracts.Decode(format, []byte(block[1]))
		require.NoError(t, err, block[1])
		require.NoError(t, body.Validate(), block[1])
		seen[format]++
	}
	require.Equal(t, map[string]int{contract.MessageV1: 1, contract.EnvelopeV1: 1}, seen)
}
