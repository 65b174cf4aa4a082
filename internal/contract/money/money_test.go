package money_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract/money"
	"billhook/internal/filetest"
)

func TestAmountIsReadByTheDigitsOfItsCurrency(t *testing.T) {
	t.Parallel()
	all := filetest.YAML[[]struct {
		What, Amount, Currency, Error string
		Minor                         int64
	}](t, "testdata", "amounts.yaml")
	for _, test := range all {
		want, known := map[string]error{
			"": nil, "range": money.ErrRange, "amount": money.ErrAmount, "currency": money.ErrCurrency,
		}[test.Error]
		require.True(t, known, test.What)
		minor, err := money.Parse(test.Amount, test.Currency)
		require.ErrorIs(t, err, want, test.What)
		require.Equal(t, test.Minor, minor, test.What)
	}
	require.ErrorIs(t, filetest.ErrorOf(money.Format(5, "usd")), money.ErrCurrency)
	require.Equal(t, []string{"0.05", "5"}, []string{money.Text(5, "EUR"), money.Text(5, "points")})
}

func TestEveryAmountHasOneForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minor := rapid.Int64().Draw(t, "minor")
		currency := rapid.SampledFrom([]string{"JPY", "USD", "KWD", "CLF"}).Draw(t, "currency")
		text := filetest.Must(money.Format(minor, currency))(t)
		require.Equal(t, minor, filetest.Must(money.Parse(text, currency))(t))
	})
}

//nolint:paralleltest // AllocsPerRun counts the whole process
func TestParseDoesNotAllocateAndFormatOnlyItsText(t *testing.T) {
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, _ = money.Format(math.MinInt64, "USD")
		_, _ = money.Parse("92233720368547758.07", "USD")
	}), 1.0)
}

func FuzzParse(f *testing.F) {
	for _, seed := range [][2]string{
		{"10.00", "USD"},
		{"1000", "JPY"},
		{"1.000", "KWD"},
		{"-0.0001", "CLF"},
		{"", ""},
		{"92233720368547758.08", "USD"},
		{"00", "JPY"},
		{"1e3", "JPY"},
		{"-0", "JPY"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, decimal, currency string) {
		minor, err := money.Parse(decimal, currency)
		if err != nil {
			require.Zero(t, minor)
			return
		}
		require.Equal(t, decimal, filetest.Must(money.Format(minor, currency))(t))
	})
}
