// Package webhooktest makes PayNow webhooks of any size for tests and benchmarks, in PayNow's shape and with
// invented people.
package webhooktest

import (
	"bytes"
	"fmt"
)

// Order returns an ON_ORDER_COMPLETED of about size bytes. Each line has its whole product, as PayNow's do.
func Order(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"event_type":"ON_ORDER_COMPLETED","event_id":"502113004410990001",` +
		`"body":{"id":"502113004410990002","store_id":"502113004410000900",`)
	b.WriteString(`"customer":{"id":"502113004410990003","name":"Ilse Brandvold",` +
		`"steam":{"id":"76561198000004242","name":"ilse_b","avatar_url":"https://avatars.invalid/ilse.png"},`)
	b.WriteString(`"minecraft":{"id":"0c9d1b52-5f60-4f0e-8f2a-7b1f2f0e9a11","name":"IlsePlays",` +
		`"avatar_url":"https://avatars.invalid/i.png"},`)
	b.WriteString(`"profile":{"id":"76561198000004242","platform":"steam","name":"ilse_b",` +
		`"avatar_url":"https://avatars.invalid/ilse.png"}},`)
	b.WriteString(`"checkout_id":"502113004410000300","checkout":{"id":"502113004410000300",` +
		`"metadata":{"uid":"Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"},"lines":[]},"subscription_id":null,`)
	b.WriteString(`"applied_coupons":[],"applied_giftcards":[],"coupon_id":"","type":"one_time",` +
		`"currency":"USD","tax_inclusive":true,"tax_amount":0,"discount_amount":0,`)
	b.WriteString(`"created_at":"2026-03-02T10:00:00Z","completed_at":"2026-03-02T10:01:00Z",` +
		`"billing_name":"Ilse Brandvold","billing_email":"ilse.brandvold@example.org",`)
	b.WriteString(
		`"billing_address_country":"NO","customer_ip":"198.51.100.23/24","giftcard_usage_amount":0,"lines":[`)
	total := 0
	for i := 0; i == 0 || b.Len() < size-900; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		total += 2000
		fmt.Fprintf(&b, `{"id":"5021130044101%05d","checkout_line_id":"502113004410000301",`+
			`"product_id":"411486491630370501","product_version_id":"411486491630370509",`, i)
		b.WriteString(`"product":{"id":"411486491630370501","store_id":"502113004410000900",` +
			`"version_id":"411486491630370509","image_url":null,"slug":"points","name":"1000 Points",`)
		b.WriteString(`"description":"<p>Questions? Write to ilse.brandvold@example.org or call +47 73 59 00 00. ` +
			`Every piece is worth a thousand points, and they never expire.</p>","enabled":true,`)
		b.WriteString(`"label":null,"sort_order":1,"price":1000,"single_game_server_only":false,` +
			`"allow_one_time_purchase":true,"allow_subscription":false,"tags":[],"tag_names":"",`)
		b.WriteString(`"gameservers":[],"commands":[{"stage":"on_purchase","content":"give {customer.name} 1000",` +
			`"online_only":false}],"created_at":"2025-01-01T00:00:00Z","metadata":{}},`)
		b.WriteString(`"product_name":"1000 Points","product_image_url":null,"subscription_id":null,` +
			`"gift_to_customer":null,"price":1000,"quantity":2,"discount_amount":0,`)
		b.WriteString(`"subtotal_amount":2000,"tax_amount":0,"total_amount":2000,"selected_gameserver_id":null}`)
	}
	fmt.Fprintf(&b, `],"subtotal_amount":%d,"total_amount":%d,"product_names":"1000 Points",`+
		`"product_tags":"points","status":"completed"}}`, total, total)
	return b.Bytes()
}
