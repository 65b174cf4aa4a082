package pii_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ids are of one kind, in as many forms.
type ids struct {
	name  string
	forms []form
	// chance: some are a card's number by any rule that finds cards.
	chance bool
}

type form func(g *generator) string

// of is a beginning and so many characters of an alphabet.
func of(begins, alphabet string, n int) form {
	return func(g *generator) string { return begins + g.of(alphabet, n) }
}

// after is a form behind each of the prefixes.
func after(f form, prefixes ...string) form {
	return func(g *generator) string { return pick(g, prefixes...) + f(g) }
}

// now is the moment of ids that tell time; they are of the eight years before it, and of
// the two behind.
var now = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func (g *generator) moment() time.Time {
	return now.Add(time.Duration(g.Int64N(int64(10*365*24*time.Hour))) - 8*365*24*time.Hour)
}

func (g *generator) uuid() string {
	var id uuid.UUID
	for i := range id {
		id[i] = g.octet(0, 255)
	}
	version := byte(4)
	if g.IntN(3) == 0 {
		version = 7
		ms := g.moment().UnixMilli()
		for i := range 6 {
			id[i] = byte(ms >> (40 - 8*i) & 0xff)
		}
	}
	id[6], id[8] = id[6]&0x0f|version<<4, id[8]&0x3f|0x80
	return id.String()
}

// snowflake counts milliseconds since an epoch in its capitals bits.
func (g *generator) snowflake(epoch, bits int64) string {
	return strconv.FormatInt((g.moment().UnixMilli()-epoch)<<bits|g.Int64N(1<<bits), 10)
}

func twitter(g *generator) string { return g.snowflake(1288834974657, 22) }
func discord(g *generator) string { return g.snowflake(1420070400000, 22) }

// at formats a moment.
func at(layout string) form {
	return func(g *generator) string { return g.moment().Format(layout) }
}

// epoch counts since 1970.
func epoch(count func(time.Time) int64) form {
	return func(g *generator) string { return strconv.FormatInt(count(g.moment()), 10) }
}

const hexDigits = "0123456789abcdef"

func (g *generator) hex(bytes int) string { return g.of(hexDigits, 2*bytes) }

func ulid(g *generator) string {
	const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	ms, head := g.moment().UnixMilli(), make([]byte, 10)
	for i := range head {
		head[9-i] = crockford[ms>>(5*i)&31]
	}
	return string(head) + g.of(crockford, 16)
}

// objectID is MongoDB's, and the second half of Auth0's users: seconds, then anything.
func objectID(g *generator) string { return fmt.Sprintf("%08x", g.moment().Unix()) + g.hex(8) }

// eui is an address of hardware in 64 bits, in groups.
func eui(gap string, size int) form {
	return func(g *generator) string {
		address := g.hex(8)
		if g.IntN(2) == 0 {
			address = address[:6] + "fffe" + address[10:]
		}
		if g.IntN(4) == 0 {
			address = "00" + address[2:]
		}
		if g.IntN(2) == 0 {
			address = strings.ToUpper(address)
		}
		return grouped(address, gap, size)
	}
}

// dashed is digits in groups.
func dashed(n int, sizes ...int) form {
	return func(g *generator) string { return grouped(g.of(digits, n), "-", sizes...) }
}

// then is one form and another with something between.
func then(one form, gap string, other form) form {
	return func(g *generator) string { return one(g) + gap + other(g) }
}

func padded(width, below int) form {
	return func(g *generator) string { return fmt.Sprintf("%0*d", width, g.IntN(below)) }
}

func large(f form) form { return func(g *generator) string { return strings.ToUpper(f(g)) } }

func word(g *generator) string {
	return pick(g, "points", "user", "paid", "invoice", "abc", "cafe", "b")
}

const url64 = base62 + "-_"

var allIDs = []ids{
	{name: "UUIDs", forms: []form{(*generator).uuid, large((*generator).uuid), after((*generator).uuid, "order-", "cus_", "x:"), then((*generator).uuid, ":", word)}},
	{name: "UUIDs without dashes", forms: []form{func(g *generator) string { return strings.ReplaceAll(g.uuid(), "-", "") }}},
	{name: "ULIDs", forms: []form{ulid, after(ulid, "ord_")}},
	{name: "snowflakes of Discord and Twitter", forms: []form{discord, twitter}},
	{name: "PayNow's flakes", forms: []form{func(g *generator) string {
		return strconv.FormatInt(350_000_000_000_000_000+g.Int64N(300_000_000_000_000_000), 10)
	}}},
	{name: "numbers of 17 and 18 digits, alone and behind a prefix", forms: []form{after(of("7", digits, 16), "", "user-", "u_"), after(of("4", digits, 17), "", "user-", "order:")}},
	{name: "Stripe's ids", forms: []form{
		after(of("", base62, 14), "cus_", "prod_"), after(of("", base62, 23), "pi_3", "ch_3", "evt_1", "sub_1", "price_1", "in_1"), of("evt_", base62, 24), of("cs_live_", base62, 58),
	}},
	{name: "Firebase's uids", forms: []form{of("", base62, 28)}},
	{name: "Auth0's users", forms: []form{
		after(objectID, "auth0|", "sms|"), of("windowslive|", hexDigits, 16), of("google-oauth2|1", digits, 20), of("github|", digits, 8),
		after(twitter, "twitter|"), after(discord, "oauth2|discord|"), of("facebook|10", digits, 13), of("facebook|4", digits, 15), of("facebook|1", digits, 16),
		of("samlp|acme|", lower, 8), of("waad|", url64, 43), then(of("apple|00", digits, 4), ".", then(of("", hexDigits, 32), ".", of("", digits, 4))),
	}},
	{name: "Cognito's identities", forms: []form{after((*generator).uuid, "eu-west-1:", "us-east-2:", "ap-southeast-1:")}},
	{name: "other identity providers' names", forms: []form{
		then(of("", base62, 1), "", of("", url64, 42)), of("user_", base62, 27), of("00u", base62, 17), of("7656119", digits, 10), of("U", hexDigits, 32), of("_", hexDigits, 42),
	}},
	{name: "`ORD-2025-001-002`, `20250302-100100-001`", forms: []form{
		then(after(at("2006"), "ORD-", "INV-", "", "PL-", "DE-"), "-", then(padded(3, 1000), "-", padded(3, 1000))), then(at("pay_2006-01-02"), "-", padded(3, 1000)),
		then(at("20060102-150405"), "-", padded(3, 1000)), then(after(at("20060102"), "ORD-", "order_", "", "DE-"), "-", padded(6, 1_000_000)), after(at("20060102150405"), "", "ORD-", "DE"),
	}},
	{name: "`1001`, `ORD-0000001001`", forms: []form{
		after(padded(1, 1_000_000), "", "ORD-", "ORD", "W", "no.", "order:"), after(padded(10, 100_000_000), "", "ORD-", "ORD", "inv_"), after(padded(1, 1_000_000_000), "", "ORD-", "u:"),
	}},
	{name: "`123-456-7890`, `123-1234567-1234567`", forms: []form{
		after(dashed(10, 3, 3, 4), "", "order-"), dashed(17, 3, 7), after(dashed(9, 3), "", "A"), dashed(12, 4),
	}},
	{name: "EUI-64", forms: []form{eui(":", 2), after(eui(":", 2), "dev:", "eui-", "eui", "ad:"), eui("-", 2)}},
	{name: "hashes, object ids", forms: []form{
		objectID, of("", hexDigits, 40), of("", hexDigits, 64),
		func(g *generator) string { return grouped(g.hex(20), ":", 2) },
	}},
	{name: "KSUIDs, nanoids, cuids", forms: []form{of("2", base62, 26), then(of("", base62, 1), "", of("", url64, 20)), then(of("", lower, 1), "", of("", digits+lower, 23))}},
	{name: "times and versions", forms: []form{
		at(time.RFC3339Nano), epoch(time.Time.UnixMilli), epoch(time.Time.UnixMicro), epoch(time.Time.UnixNano), after(epoch(time.Time.UnixMilli), "run:"),
		then(after(padded(1, 30), "v", ""), ".", then(padded(1, 30), ".", padded(1, 300))),
	}},
	{name: "names with colons", forms: []form{
		then(word, ":", then(word, ":", of("", digits, 6))), then(word, "::", of("", digits, 5)), after(then(word, "::", of("", digits[1:], 4)), "App::"),
		then(of("arn:aws:iam::2", digits, 11), ":", word),
	}},
	{name: "EUI-64 in groups of four, traces", forms: []form{
		eui(".", 4), eui(":", 4), then(of("00-", hexDigits, 32), "-", then(of("", hexDigits, 16), "-", of("", "01", 2))),
	}, chance: true},
	{name: "16 random digits alone", forms: []form{of("", digits, 16)}, chance: true},
	{name: "16 random digits behind a prefix", forms: []form{of("u_", digits, 16)}, chance: true},
	{name: "13 random digits alone", forms: []form{of("", digits, 13)}, chance: true},
}
