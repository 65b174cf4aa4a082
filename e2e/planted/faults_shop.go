package main

// faultsOfShop are on the way of a payment to the shop's order, and of what people do about both.
var faultsOfShop = []fault{
	{"a retry of a credit tells nothing of the shop's order", "internal/billing/points.go", `return p.told(event, order, handler.Effect{Result: AlreadyCredited}), nil`,
		`return handler.Effect{Result: AlreadyCredited}, nil`, billingDir, "TestAPaidOrderConfirmsTheOneOfTheShopWhereSomebodyTakesIt"},
	{"a refund names an order of the shop", "internal/webhook/paynow.go", `source.OrderIDMetadataKey != "" && mapped == contract.OrderPaid`,
		`source.OrderIDMetadataKey != ""`, webhookDir, "TestNothingElseNamesTheShopsOrder"},
	{"an odd id of the shop's order refuses the buyer's", "internal/webhook/paynow.go", "path := \"body.\" + source.OrderIDMetadataKey\n\t\t\trules[path] = pii.ID\n\t\t\toptional = append(optional, path)",
		"rules[\"body.\"+source.OrderIDMetadataKey] = pii.ID", webhookDir, "TestABadIdOfTheShopsOrderIsLeftOutAndTheOrderIsTaken"},
	{"a queue that does not run is emitted to", "catalog/only.go", `ok && to.Enabled && to.ID == id`, `ok && to.ID == id`, "catalog", "TestAQueueThatIsNotEnabledIsNotEmittedTo"},
	{"a reason holds a line break", "internal/audit/words.go", `return unicode.IsControl(r) || unicode`, `return unicode`, "internal/audit", "TestADocumentThatIsNoEntryIsRefused"},
	{"a cell of a table clears the terminal", "cmd/billhook/table.go", `audit.Escape(text)`, `text`, cmdDir, "TestACellOfATableControlsNoTerminal"},
	{"a stock's dry run says nothing of what is new", "cmd/billhook/stock.go", `if asks || why.dryRun {`, `if asks {`, cmdDir, "TestStockIsSetFromATerminal"},
}
