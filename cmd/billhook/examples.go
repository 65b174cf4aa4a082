package main

// examples are one or more uses of each command, for its help. Tests run them.
var examples = map[string]string{
	"dev": "billhook dev --data ./state",

	"provision":        "PUBSUB_EMULATOR_HOST=127.0.0.1:8085 PUSH_BASE_URL=http://127.0.0.1:8081 billhook provision",
	"doctor":           "billhook doctor --canary --webhook https://webhook.example.com",
	"catalog check":    "CATALOG_DIR=./catalog billhook catalog check",
	"catalog print":    "billhook catalog print | jq '.queues[].id'",
	"catalog contract": "billhook catalog contract message.v1:order.created:1",
	"import redis":     "REDIS_URL=redis://127.0.0.1:6379 billhook import redis <queue> --dry-run",
	"import rabbitmq":  "RABBITMQ_URL=amqp://127.0.0.1:5672 billhook import rabbitmq <queue>=<name of old> --rate 50 --yes",
	"import postgres":  "DATABASE_URL=postgres://127.0.0.1/billing billhook import postgres --table event_queue --dry-run",

	"queues rates":  "billhook queues rates --queue <queue> --days 30",
	"queues pause":  "billhook queues pause <queue> --why \"the ledger is being mended\"",
	"queues resume": "billhook queues resume <queue> --why \"the ledger is mended\"",

	"search":             "billhook search 900000000000000033",
	"subscriptions ls":   "billhook subscriptions ls",
	"subscriptions show": "billhook subscriptions show 900000000000000061",

	"events show":    "billhook events show 900000000000000031",
	"events ls":      "billhook events ls --queue <queue> --status FAILED --since 36h",
	"events payload": "billhook events payload 900000000000000031 --why \"ticket 7\"",
	"events tail":    "billhook events tail --queue <queue>\nbillhook events tail --status DEAD_LETTERED",
	"events try":     "billhook events try 900000000000000031\nbillhook events try -f message.json --queue <queue>",

	"endpoints history":  "billhook endpoints history partner",
	"dlq ls":             "billhook dlq ls\nbillhook dlq ls <queue> --since 7d --reason unknown_product",
	"dlq reasons":        "billhook dlq reasons\nbillhook dlq reasons <queue> --since 36h",
	"dlq show":           "billhook dlq show 4e538e03ba010d15~1795349102063893",
	"dlq payload":        "billhook dlq payload 4e538e03ba010d15~1795349102063893 --why \"ticket 7\"",
	"dlq preview":        "billhook dlq preview <queue> --reason unknown_product",
	"dlq replay":         "billhook dlq replay <queue> --reason unknown_product --why \"the product is set\"\nbillhook dlq replay <queue> 4e538e03ba010d15~1795349102063893 --why \"the gateway is back\"",
	"dlq discard":        "billhook dlq discard <queue> --event-id 900000000000000031 --why \"a test of the sender\"",
	"dlq complete":       "billhook dlq complete <queue> --event-id 900000000000000031 --why \"refunded by hand at the gateway\"",
	"operations ls":      "billhook operations ls --progress waiting_for_approval",
	"operations show":    "billhook operations show 0b5c9c1e-7d9f-4d5c-9d25-2d6d7c9a5b10",
	"operations items":   "billhook operations items 0b5c9c1e-7d9f-4d5c-9d25-2d6d7c9a5b10 --state open",
	"operations preview": "billhook operations preview 5f1c9a52-8d1e-4a0b-9f57-0c8f6f1f2c11",
	"operations approve": "billhook operations approve 5f1c9a52-8d1e-4a0b-9f57-0c8f6f1f2c11 --why \"compared with the invoice\"",
	"operations reject":  "billhook operations reject 0b5c9c1e-7d9f-4d5c-9d25-2d6d7c9a5b10 --why \"the product is not known yet\"",
	"operations cancel":  "billhook operations cancel 0b5c9c1e-7d9f-4d5c-9d25-2d6d7c9a5b10 --why \"the product is not known yet\"",
	"operations run":     "billhook operations run 5f1c9a52-8d1e-4a0b-9f57-0c8f6f1f2c11",

	"products ls":      "billhook products ls",
	"products set":     "billhook products set 411486491630370503 --points 500 --why \"sold since today\"",
	"products retire":  "billhook products retire 411486491630370503 --why \"sold out\"",
	"products show":    "billhook products show 411486491630370501",
	"products history": "billhook products history 411486491630370503",

	"customers ls":       "billhook customers ls --limit 20",
	"customers show":     "billhook customers show 900000000000000033",
	"customers preview":  "billhook customers preview 900000000000000033",
	"customers activity": "billhook customers activity 900000000000000033",
	"customers history":  "billhook customers history 900000000000000033",
	"customers link":     "billhook customers link 900000000000000033 user_42 --why \"ticket 7\"",
	"customers unlink":   "billhook customers unlink 900000000000000033 --why \"two people\"",

	"endpoints ls":      "billhook endpoints ls --state failing",
	"endpoints show":    "billhook endpoints show partner-1",
	"endpoints add":     "billhook endpoints add https://partner.example.com/hooks --events 'invoice.*' --why \"contract 12\"",
	"endpoints test":    "billhook endpoints test partner-1",
	"endpoints rotate":  "billhook endpoints rotate partner-1 --why \"a year has passed\"",
	"endpoints enable":  "billhook endpoints enable partner-1 --why \"they have mended it\"",
	"endpoints disable": "billhook endpoints disable partner-1 --why \"they have asked for it\"",
	"endpoints rm":      "billhook endpoints rm partner-1 --why \"the contract has ended\"",

	"refunds ls":   "billhook refunds ls --state refused",
	"refunds show": "billhook refunds show pay-388d3a44eb412d6f",

	"orders ls":     "billhook orders ls --state OrderCancelled --limit 20",
	"orders show":   "billhook orders show order-7",
	"stock ls":      "billhook stock ls",
	"stock show":    "billhook stock show mug",
	"stock set":     "billhook stock set mug --available 40 --why \"a delivery\"",
	"stock history": "billhook stock history mug",

	"usage show":    "billhook usage show subscription-3 --period 2026-11",
	"usage ls":      "billhook usage ls --month 2026-11",
	"usage entries": "billhook usage entries subscription-3 --period 2026-11 --limit 0 -o csv",

	"journal ls":         "billhook journal ls --period 2026-11 --account cash",
	"journal balances":   "billhook journal balances --period 2026-11\nbillhook journal balances --from 2026-10 --to 2026-12",
	"accounts statement": "billhook accounts statement cash --period 2026-11",
	"ledger export":      "billhook ledger export --period 2026-11 --csv --out november.csv\nbillhook ledger export --from 2026-10 --to 2026-12 --csv\nbillhook ledger export --seals",
	"ledger verify":      "billhook ledger verify\nbillhook ledger verify --tenant default",
	"ledger prove":       "billhook ledger prove order-7 --out order-7.proof",
	"ledger check-proof": "billhook ledger check-proof order-7.proof --seals seals.jsonl",

	"audit ls": "billhook audit ls --since 7d\nbillhook audit ls --kind product --subject 411486491630370503",
}
