package dedupe_test

import (


	"billhook/internal/platform/store"
)

var shelf = store.Key{Collection: "shelf", ID: "x"}
