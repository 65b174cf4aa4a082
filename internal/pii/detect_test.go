package pii_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pii"
)

func TestTheDetectorsFindPersonalData(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"ilse@example.org": "email", "to: ilse.b+x@mail.example.co.uk, please": "email", "ilse@exämple.org": "email",
		"198.51.100.23": "ip", "from 198.51.100.23/24": "ip", "2001:db8:5::17": "ip", "[::1]": "ip", "::ffff:198.51.100.23": "ip",
		"4111 1111 1111 1111": "card", "4111-1111-1111-1111": "card", "5500005555555559": "card", "card 378282246310005 ok": "card",
		"NO93 8601 1117 947": "iban", "PL61109010140000071219812874": "iban", "iban GB29NWBK60161331926819.": "iban",
		"+47 73 59 00 00": "phone", "+48601234567": "phone", "call (555) 123-4567 x": "phone", "0048 601 234 567": "phone", "601.234.567": "phone",
		"0048601234567": "phone", "tel:601-234-567": "phone", "(+47) 73 59 00 00": "phone", "mail ilse@example.org.": "email",
		"id:198.51.100.23": "ip", "ip:2001:db8:5::17": "ip", "198.51.100.23:8080": "ip", "[2001:db8::1]:443": "ip",
		"3782-822463-10005": "card", "12-4111-1111-1111-1111": "card", "6011 0009 9013 9424 ": "card",
		"2f3d0a11-1111-4111-8111-111111111111:4111111111111111": "card",

		// Behind letters and marks, which an identity provider's name may be.
		"card-4539148803436467": "card", "card4539148803436467": "card", "u_4111111111111111": "card", "auth0|4111111111111111": "card",
		"x:y.z|4111-1111-1111-1111": "card", "id_4111_1111_1111_1111": "card", "4111.1111.1111.1111": "card", "v:378282246310005-2": "card", "4111:1111:1111:1111": "card",
		"iban-pl61109010140000071219812874": "iban", "ibanPL61109010140000071219812874": "iban", "auth0|gb29nwbk60161331926819": "iban",
		"ip198.51.100.23": "ip", "host-198.51.100.23:8080": "ip", "auth0|198.51.100.23": "ip", "cab2001:db8:5::17": "ip", "ipFE80::1:2": "ip", "x|fd12:3456::1": "ip",
		"paid2001:db8:0:0:0:0:0:17": "ip", "user:2001:db8::17": "ip", "auth0|ilse@example.org": "email", "mailto:ilse@example.org": "email",

		// In any letter case, and grouped.
		"no9386011117947": "iban", "Pl61109010140000071219812874": "iban", "no93-8601-1117-947": "iban", "PL61.1090.1014.0000.0712.1981.2874": "iban",
		"mt84malt011000012345mtlcast001s": "iban", "FR14 2004 1010 0505 0001 3m02 606": "iban", "ILSE@EXAMPLE.ORG": "email", "2001:DB8::17": "ip",

		// Of every network.
		"4222222222222": "card", "2223003122003222": "card", "6011000990139424": "card", "3056930009020004": "card", "36227206271667": "card", "3530111333300000": "card",
		"6205500000000000004": "card", "6759649826438453": "card", "2200123456789019": "card", "180000000000002": "card", "3622 720627 1667": "card", "4222 2222 2222 2": "card",
		"the short 501800000009 of old": "card",

		// A phone's number needs a plus, a word, or the form that it has.
		"tel:48601234567": "phone", "tel48601234567": "phone", "Phone_601.234.567": "phone", "whatsapp|48601234567": "phone", "id:0048601234567": "phone", "004873590000": "phone",
		"tel:+48-601-234-567": "phone", "call 555-123-4567 now": "phone", "(555) 123-4567 x12": "phone", "555-123-4567x123 is mine": "phone", "at 01632 960001, please": "phone",
		"0171 1234567 after six": "phone", "011 44 7911 123456": "phone", "+1.555.123.4567": "phone", "mob: 07911123456": "phone",
	} {
		found, ok := pii.Detect(pii.UID, value)
		require.True(t, ok, value)
		require.Equal(t, want, found, value)
	}
}

func TestTheDetectorsAreSilentAboutIdentifiers(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"ORD-2025-001", "evt_abc123", "Zk3uQm0aBcD4eFgH5iJkL6mNoPq7", "points:user:abc", "req_xyz789", "msg_a1b2c3d4",
		"2f3d0a11-1111-4111-8111-111111111111", "sub_2f3d0a11-1111-4111-8111-111111111111:refund", "v1.2.3", "sub-payment-initiation", "pay_run_2026_03", "a:b:c", "INV-2026-000042",
		// Right in everything but the check digit.
		"4111-1111-1111-1112", "4111111111111112", "NO9386011117948",
		"ORD-123-456-789",
		// Order ids of digits and dashes, and what else looks like something from afar.
		"123-456-7890", "601-234-567", "123-1234567-1234567", "4111-111111-1111", "1234-5678-9012", "20260302-12345678", "tel-2026-03-02-001", "hotel:601234567", "tel-12345678",
		"00:1a:2b:ff:fe:3c:4d:5e", "00-1A-2B-FF-FE-3C-4D-5E", "001a.2bff.fe3c.4d5e", "eui-cd:c5:d0:ff:fe:70:ae:6a", "ad:00:1a:2b:ff:fe:3c:4d:5e", "euiab:cd:ef:12:34:56:78:90",
		"invoice::12:34", "points::abc:def", "App::User::12", "arn:aws:s3:::b", "arn:aws:iam::123456789012:user", "cafe::user", "1.3.6.1.4.1.311", "2026.03.02.001", "10.02.03.04",
		// Right by the remainder of 97: within a UUID, and with letters where Poland has none.
		"2f3d0a11-ad68-4567-8901-234567890123", "pl04zk3uqm0abcd4efgh5ijkl6mn",
		"DE20250001230004567890", "DE-2025-0001-2300-0456-78", "ab12cd4111111111111111", "4111111111111111abc", "2026030210010012", "1740921600000000", "179000000000000000",
		// Identity providers.
		"auth0|5f7c8ec7c33c6c004bbafe82", "google-oauth2|103547991597142817347", "facebook|4111111111111111", "twitter|1790000000000000000", "eu-west-1:2f3d0a11-1111-4111-8111-111111111111",
		"oauth2|discord|700000000000000300", "samlp|acme|00u1abcd", "apple|001234.0123456789abcdef0123456789abcdef.1234", "f:2f3d0a11-1111-4111-8111-111111111111:ilse",
		// Dated and numbered ids: refusing one of these would lose an order.
		"ORD-2025-001-002", "pay_2026-03-02-001", "order-20260302-000001", "2026-03-02-000123", "20260302-100100-001", "ORD-0000000042", "0000000042",
		"2026-03-02T10:01:00Z", "2026-03-02T10:01:00.123456789+02:00", "1234567.89", "points::abc", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"user-700000000000000300", "411486491630370001", "76561198000000001",
	} {
		found, ok := pii.Detect(pii.UID, id)
		require.False(t, ok, "%s is taken for %s", id, found)
	}
}

func TestDigitsAloneAreLookedAtAsTheirRuleSays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sentence, digits string
		flake, id, uid   string
	}{
		{"a card of 16 digits is one whatever the field", "4539148803436467", "card", "card", "card"},
		{"so is one of 13", "4222222222222", "card", "card", "card"},
		{"so is one of 15", "378282246310005", "card", "card", "card"},
		{"a flake may be as long as a card of 19", "6205500000000000004", "", "", "card"},
		{"a flake of PayNow is none", "411486491630370501", "", "", ""},
		{"a card that is wrong by Luhn is none", "4539148803436468", "", "", ""},
		{"a network must have it", "9539148803436463", "", "", ""},
		{"12 digits are an account's", "501800000009", "", "", ""},
		{"an international prefix is nobody's serial number", "0048601234567", "", "", "phone"},
		{"zeros in front of a serial number are not one", "0000601234567", "", "", ""},
	} {
		for rule, want := range map[pii.Rule]string{pii.Flake: test.flake, pii.ID: test.id, pii.UID: test.uid} {
			found, _ := pii.Detect(rule, test.digits)
			require.Equal(t, want, found, "%s: %s", rule.Name(), test.sentence)
		}
	}
	for _, rule := range []pii.Rule{pii.Amount, pii.Integer, pii.Quantity} { // no number is a card's
		for digits, want := range map[string]bool{
			"4539148803436467": false, "378282246310005": false, "4539148803436468": true, "9007199254740991": true,
			"4222222222222": true, // so many cents are somebody's rials
		} {
			require.Equal(t, want, rule.Valid(digits), "%s %s", rule.Name(), digits)
		}
	}
	require.False(t, pii.Integer.Valid("6205500000000000004"))
}

func TestTheNamesThatIdentityProvidersGiveAreUIDs(t *testing.T) {
	t.Parallel()
	for _, uid := range []string{
		"auth0|5f7c8ec7c33c6c004bbafe82", "google-oauth2|103547991597142817347", "facebook|10158239477412345", "samlp|acme|00u1abcd", "Zk3uQm0aBcD4eFgH5iJkL6mNoPq7",
		"eu-west-1:2f3d0a11-1111-4111-8111-111111111111", "2f3d0a11-1111-4111-8111-111111111111", "12345", "00u1abcdEFGHijklm0x7", "user_2ab3CdEfGhIjKlMnOpQrStUvWxY",
		"_ce3d2948b4cf20146dee0a0b3dd6f69b6cf86f62d7", "-AAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ", "apple|001234.0123456789abcdef0123456789abcdef.1234", strings.Repeat("x", 128),
	} {
		require.True(t, pii.UID.Valid(uid), uid)
		found, ok := pii.Detect(pii.UID, uid)
		require.False(t, ok, "%s is taken for %s", uid, found)
	}
	for _, none := range []string{
		"", "ilse@example.org", "auth0|ilse@example.org", "user 12", "a/b", "|a", ":a", ".a", "a\nb", "a+b", "é", "<p>", "a,b", "+48601234567", "(a)", strings.Repeat("x", 129),
	} {
		require.False(t, pii.UID.Valid(none), none)
	}
	require.False(t, pii.ID.Valid("auth0|5f7c"), "an order's id has no bar")
}

func FuzzDetect(f *testing.F) {
	for _, value := range []string{
		"card-4539148803436467", "ibanPL61 1090 1014 0000 0712 1981 2874", "auth0|5f7c8ec7c33c6c004bbafe82", "tel:+48 601 234 567", "x::2001:db8::17:", "::", "1.2.3.4.", "00:1a:2b:ff:fe:3c:4d:5e",
		"2f3d0a11-1111-4111-8111-111111111111:1", "ilse@example.org", "aa1", "0", ":", "a:::", "1:2:3:4:5:6:7:", "+1 (", "555-123-4567x", "ad", "AD1", "A(0000000",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, rule := range []pii.Rule{pii.Flake, pii.ID, pii.UID, pii.Code} {
			found, ok := pii.Detect(rule, value)
			require.Equal(t, found != "", ok)
			require.Contains(t, []string{"", "email", "ip", "iban", "card", "phone"}, found)
		}
		// A value that is found alone is found behind a name, too, and in capitals.
		found, _ := pii.Detect(pii.UID, value)
		if found != "" && found != "phone" && !strings.HasPrefix(value, " ") {
			for _, other := range []string{"x-" + value, "acme|" + value} {
				_, ok := pii.Detect(pii.UID, other)
				require.True(t, ok, "%q hides %s", other, found)
			}
		}
		if found == "card" || found == "ip" || found == "email" {
			_, ok := pii.Detect(pii.UID, upper(value))
			require.True(t, ok, "capitals hide %s", found)
		}
	})
}

// upper is for ASCII alone, as the detectors are.
func upper(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, text)
}

func TestARuleTakesItsShapeAlone(t *testing.T) {
	t.Parallel()
	for rule, test := range map[pii.Rule]struct{ good, bad []string }{
		pii.Flake:    {[]string{"1", strings.Repeat("9", 32)}, []string{"", strings.Repeat("9", 33), "-1", "1a", "１"}},
		pii.ID:       {[]string{"a", "ORD-2025-001", "a.b_c:d-e", strings.Repeat("x", 128)}, []string{"", "-a", ":a", "a/b", "a b", "a@b", "é", strings.Repeat("x", 129)}},
		pii.Code:     {[]string{"order.paid", "ON_REFUND", "x-1"}, []string{"", "1a", "a:b", "a b", strings.Repeat("x", 65)}},
		pii.Currency: {[]string{"USD"}, []string{"", "usd", "US", "USDT", "U$D"}},
		pii.Time: {
			[]string{"2026-03-02T10:01:00Z", "2024-02-29T23:59:59.123456789-23:59", "2000-02-29T00:00:00+00:00"},
			[]string{"", "2026-03-02", "2026-03-02 10:01:00Z", "2026-03-02T10:01:00", "2026-03-02t10:01:00z", "2026-03-02T1:01:00Z", "2026-03-02T10:01:00,5Z",
				"2026-03-02T10:01:00.Z", "2026-03-02T10:01:00.1234567890Z", "2026-02-29T10:01:00Z", "1900-02-29T10:01:00Z", "2026-13-02T10:01:00Z", "2026-00-02T10:01:00Z",
				"2026-04-31T10:01:00Z", "2026-03-00T10:01:00Z", "2026-03-02T24:01:00Z", "2026-03-02T10:60:00Z", "2026-03-02T10:01:60Z", "2026-03-02T10:01:00+24:00",
				"2026-03-02T10:01:00+0200", "2026-03-02T10:01:00+02:60", "2026-03-02T10:01:00ZZ"},
		},
		pii.Amount:   {[]string{"0", "-1", "10.00", "1.000"}, []string{"", "-", ".5", "5.", "1.2.3", "1,5", "+1", "1e3", " 1", strings.Repeat("9", 25)}},
		pii.Integer:  {[]string{"0", "-1", "9223372036854775807", "-9223372036854775808"}, []string{"", "-", "9223372036854775808", "-9223372036854775809", "1.0", "1e3", "99999999999999999999"}},
		pii.Quantity: {[]string{"1", "9007199254740991"}, []string{"", "0", "-1", "01", "9007199254740992", "9007199254740993", "1.5", "1e3", "99999999999999999"}},
		{}:           {nil, []string{"", "a", "1"}},
	} {
		for _, value := range test.good {
			require.True(t, rule.Valid(value), value)
		}
		for _, value := range test.bad {
			require.False(t, rule.Valid(value), value)
		}
	}
}
