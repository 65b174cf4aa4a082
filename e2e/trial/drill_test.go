package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
)

// The numbers of seconds are not asserted: they are the machine's.
func TestANightOnCallIsSpentWithTheRunbook(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the program")
	}
	t.Parallel()
	var out strings.Builder
	require.NoError(t, try(t.Context(), &out, "drill", "-stack", "dev"), out.String())
	said := out.String()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, i := range incidents(c) {
		require.Contains(t, said, "ALERT on "+i.queue)
		require.Regexp(t, `(?m)^`+i.name+`( +\d+\.\d){4}$`, said)
	}
	require.Contains(t, said, `$ bin/billhook products set 502113004410000777 --points 500 --why "sold since today"`)
}

func TestATrialRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, try(t.Context(), io.Discard, "drill", "-stack", "production"), "-stack")
	require.ErrorContains(t, try(t.Context(), io.Discard, "chaos", "-arms", "tx,legs"), "legs")
	require.ErrorContains(t, try(t.Context(), io.Discard, "chess"), "chaos")
}

func TestABookThatNobodyHasChangedIsProvenAndAChangeIsFound(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, try(t.Context(), &out, "books", "-entries", "40", "-tenants", "2"), out.String())
	require.Contains(t, out.String(), "changed entries/")
}

func TestAnImportThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	due := time.Now()
	s := system{queue: "q", ids: map[string]time.Time{"a": {}, "b": due}}
	a, b := handler.CalleeKey("q", contract.DefaultTenant, "a"), handler.CalleeKey("q", contract.DefaultTenant, "b")
	for name, test := range map[string]struct {
		handled map[string][]time.Time
		broken  bool
	}{
		"each is handled once":         {map[string][]time.Time{a: {due}, b: {due}}, false},
		"one is handled twice":         {map[string][]time.Time{a: {due, due}, b: {due}}, true},
		"one is lost":                  {map[string][]time.Time{b: {due}}, true},
		"one comes before its time":    {map[string][]time.Time{a: {due}, b: {due.Add(-time.Second)}}, true},
		"one is nobody's, beside them": {map[string][]time.Time{a: {due}, b: {due}, "c": {due}}, true},
	} {
		require.Equal(t, test.broken, failure(t, func(r *run) { s.check(r, test.handled) }) != nil, name)
	}
}
