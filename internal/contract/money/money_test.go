package money_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract/money"
)

func TestAnAmountIsReadByTheDigitsOfItsCurrency(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		decimal, currency string
		minor             int64
		err               error
	}{
		"two digits for the dollar":              {"10.00", "USD", 1000, nil},
		"no digits for the yen":                  {"1000", "JPY", 1000, nil},
		"three digits for the Kuwaiti dinar":     {"1.000", "KWD", 1000, nil},
		"four digits for the unidad de fomento":  {"0.0001", "CLF", 1, nil},
		"nothing":                                {"0.00", "EUR", 0, nil},
		"a negative amount":                      {"-0.05", "USD", -5, nil},
		"the largest amount":                     {"92233720368547758.07", "USD", math.MaxInt64, nil},
		"the smallest amount":                    {"-9223372036854775808", "JPY", math.MinInt64, nil},
		"one more than the largest":              {"92233720368547758.08", "USD", 0, money.ErrRange},
		"one less than the smallest":             {"-9223372036854775809", "JPY", 0, money.ErrRange},
		"twenty digits":                          {"99999999999999999999", "JPY", 0, money.ErrRange},
		"a wrong character behind twenty digits": {"99999999999999999999x", "JPY", 0, money.ErrAmount},
		"too few digits":                         {"10.0", "USD", 0, money.ErrAmount},
		"too many digits":                        {"10.000", "USD", 0, money.ErrAmount},
		"no point where one is due":              {"1000", "USD", 0, money.ErrAmount},
		"a point where none is due":              {"10.00", "JPY", 0, money.ErrAmount},
		"nothing before the point":               {".00", "USD", 0, money.ErrAmount},
		"a leading zero":                         {"010.00", "USD", 0, money.ErrAmount},
		"two zeros":                              {"00", "JPY", 0, money.ErrAmount},
		"a plus sign":                            {"+1.00", "USD", 0, money.ErrAmount},
		"minus nothing":                          {"-0.00", "USD", 0, money.ErrAmount},
		"no characters":                          {"", "JPY", 0, money.ErrAmount},
		"an exponent":                            {"1e3", "JPY", 0, money.ErrAmount},
		"a space behind":                         {"1.00 ", "USD", 0, money.ErrAmount},
		"not a number":                           {"NaN", "JPY", 0, money.ErrAmount},
		"digits of another script":               {"١", "JPY", 0, money.ErrAmount},
		"two points":                             {"1.0.00", "USD", 0, money.ErrAmount},
		"a currency in lower case":               {"1.00", "usd", 0, money.ErrCurrency},
		"no currency":                            {"1.00", "", 0, money.ErrCurrency},
		"gold, which has no minor unit":          {"1.00", "XAU", 0, money.ErrCurrency},
	} {
		minor, err := money.Parse(test.decimal, test.currency)
		require.ErrorIs(t, err, test.err, name)
		require.Equal(t, test.minor, minor, name)
	}
	_, err := money.Format(5, "usd")
	require.ErrorIs(t, err, money.ErrCurrency)
}

func TestEveryAmountHasOneForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minor := rapid.Int64().Draw(t, "minor")
		currency := rapid.SampledFrom([]string{"JPY", "USD", "KWD", "CLF"}).Draw(t, "currency")
		text, err := money.Format(minor, currency)
		require.NoError(t, err)
		back, err := money.Parse(text, currency)
		require.NoError(t, err)
		require.Equal(t, minor, back)
	})
}

func TestParseDoesNotAllocateAndFormatOnlyItsText(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the whole process
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, _ = money.Format(math.MinInt64, "USD")
		_, _ = money.Parse("92233720368547758.07", "USD")
	}), 1.0)
}

func FuzzParse(f *testing.F) {
	for _, seed := range [][2]string{
		{"10.00", "USD"}, {"1000", "JPY"}, {"1.000", "KWD"}, {"-0.0001", "CLF"}, {"", ""},
		{"92233720368547758.08", "USD"}, {"00", "JPY"}, {"1e3", "JPY"}, {"-0", "JPY"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, decimal, currency string) {
		minor, err := money.Parse(decimal, currency)
		if err != nil {
			require.Zero(t, minor)
			return
		}
		text, err := money.Format(minor, currency)
		require.NoError(t, err)
		require.Equal(t, decimal, text)
	})
}
