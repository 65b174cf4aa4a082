package main

const (
	pagesStyle  = "internal/ops/pages/static/ops.css"
	pagesLayout = "internal/ops/pages/templates/layout.html"
	pagesParts  = "internal/ops/pages/templates/partials.html"
	browserDir  = "e2e/browser"
	forAll      = "TestAListAndAFormAreForEverybody"
)

// faultsOfBrowser are those that only a browser sees.
var faultsOfBrowser = []fault{
	{"the focus is not seen", pagesStyle, `:focus-visible { outline: 3px solid var(--focus);`, `:focus-visible { outline: none;`, browserDir, forAll},
	{"quiet words are too pale", pagesStyle, `--ink: #1b1f24; --soft: #57606a;`, `--ink: #1b1f24; --soft: #a9b1ba;`, browserDir, forAll},
	{"quiet words are too dark in the dark", pagesStyle, `--ink: #e6edf3; --soft: #9da7b1;`, `--ink: #e6edf3; --soft: #4d555d;`, browserDir, forAll},
	{"the rest of the menu leaves the screen of a phone", pagesStyle, `.more > div { left: .5rem; right: .5rem; min-width: 0; }`, `.more > div { left: 50%; right: auto; }`, browserDir, forAll},
	{"buttons are too low for a thumb", pagesStyle, `select, button, .button { min-height: 44px; }`, `select, button, .button { min-height: 30px; }`, browserDir, forAll},
	{"something moves for who asked for no motion", pagesStyle, `@media (prefers-reduced-motion: no-preference) {`, `@media (min-width: 1px) {`, browserDir, forAll},
	{"the reason has no label", pagesParts, `<label for="why">Why</label>`, `<label for="reason">Why</label>`, browserDir, forAll},
	{"a style of its own is in a page", pagesLayout, `<main id="main" tabindex="-1">`, `<main id="main" tabindex="-1" style="color: red">`, browserDir, forAll},
}
