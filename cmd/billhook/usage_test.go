package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsAskedOfAPeriodIsPrintedWithWhatItsAnswerSays(t *testing.T) {
	t.Parallel()
	server := listen(t, answering(`{"subscription":"s-1","period":"2026-03","meters":{"rows":{"used":-2,"entries":1},
		"calls":{"used":808,"entries":101,"quota":1000,"percent":80,"warned":80,"warned_by":"e80","counted_at":"2026-03-02T10:15:00Z"}}}`))
	play(t, asAda, server, []step{{
		line: "usage show s-1", want: "PERIOD 2026-03\n…calls: 808 used of 1000, 80 %, in 101 entries, the last counted 2026-03-02T10:15:00Z; warned at 80 % by event e80.\nrows: -2 used, in 1 entries",
	}})
}

func TestSearchNamesTheCommandThatShowsWhatItFinds(t *testing.T) {
	t.Parallel()
	server := listen(t, answering(`{"query":"auth0|u7","items":[{"kind":"customer","id":"c-7","path":"/v1/ops/customers/c-7"},
		{"kind":"account","id":"points:user:auth0|u7","path":"/v1/ops/accounts/points:user:auth0%7Cu7"}]}`))
	play(t, asAda, server, []step{{line: `search " 'auth0|u7' " --wide`, want: "customers show c-7\n…accounts show 'points:user:auth0|u7'\n"}})
	for id, want := range map[string]string{"e-1.a:b": "e-1.a:b", "a|b": "'a|b'", "a'; rm": `'a'\''; rm'`, "x~y": "'x~y'", "": ""} {
		require.Equal(t, want, quoted(id), "a shell takes an id as one word")
	}
}
