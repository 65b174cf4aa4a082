// Command browser looks at the operations pages in a headless Chromium, as people see them.
//
//	go run ./e2e/browser [-into folder] [-only regexp] [-chosen folder]
//
// It starts a Billhook on the stand-ins, has much happen in it, and takes a picture of every page that the pages
// declare: on a desktop and on a phone, light and dark, of a full shop, of an empty one, and while the
// database is down. It exits non-zero where something at 320, 390 or 1280 pixels is wider than the tab, is
// cut off, or is too small to read or to touch. -chosen writes the pictures of the README alone.
//
// Its tests walk the pages as people on call do, and ask axe-core and the keyboard about each. They start
// processes of their own, and are left out with -short.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"billhook/internal/platform/serve"
)

func main() {
	serve.Main("browser", func(ctx context.Context) error { return looking(ctx, os.Args[1:], os.Stdout) })
}

// asked is what the command was asked for.
type asked struct {
	into, chosen string
	only         *regexp.Regexp
}

func looking(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("browser", flag.ContinueOnError)
	into := flags.String("into", "", "the folder that the pictures are written to; empty: a new temporary one")
	chosen := flags.String("chosen", "", "write the pictures of the README into this folder, and no others")
	only := flags.String("only", "", "a regular expression; other pages, by their names, are left out")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	by := asked{*into, *chosen, names}
	if by.chosen != "" {
		by.into = by.chosen
	} else if by.into == "" {
		if by.into, err = os.MkdirTemp("", "billhook-pictures-"); err != nil {
			return err
		}
	}
	binary, err := findChromium()
	if err != nil {
		return err
	}
	g, err := openGallery(ctx, binary)
	if err != nil {
		return err
	}
	defer g.close()
	if by.chosen != "" {
		return g.choose(by.chosen)
	}
	return g.photograph(by, stdout)
}

// gallery is a full shop, an empty one, and a browser in which somebody has signed in to both.
type gallery struct {
	*chromium
	full, empty *shop
	// visitors have a tab of each shop.
	visitors  map[*shop]*tab
	addresses []address
	closers   []func()
}

// openGallery starts all of it until close.
func openGallery(ctx context.Context, binary string) (g *gallery, err error) {
	g = &gallery{visitors: map[*shop]*tab{}}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	chromium, end, err := startChromium(ctx, binary)
	if err != nil {
		return g, err
	}
	g.chromium, g.closers = chromium, append(g.closers, end)
	for _, s := range []**shop{&g.full, &g.empty} {
		if *s, err = openShop(ctx); err != nil {
			return g, err
		}
		g.closers = append(g.closers, (*s).close)
		if err := g.welcome(*s); err != nil {
			return g, err
		}
	}
	if err := g.full.fill(ctx); err != nil {
		return g, err
	}
	routes, err := g.full.routes()
	if err != nil {
		return g, err
	}
	subjects, err := g.full.subjects(ctx)
	if err != nil {
		return g, err
	}
	g.addresses, err = addresses(routes, subjects, g.full.questions())
	return g, err
}

// welcome has somebody sign in to a shop: a change is offered to who has a name.
func (g *gallery) welcome(s *shop) error {
	t, closing, err := g.open(s.WorkerURL)
	if err != nil {
		return err
	}
	g.visitors[s], g.closers = t, append(g.closers, closing)
	return t.signIn("ada")
}

func (g *gallery) close() {
	for _, c := range slices.Backward(g.closers) {
		c()
	}
}

// state is how a shop is looked at.
type state struct {
	name string
	shop *shop
	// answers are the statuses that its pages may have.
	answers []int
	down    bool
}

// states are those that each page is looked at in. They follow each other: the last one takes the database
// away.
func (g *gallery) states() []state {
	return []state{
		{name: "full", shop: g.full, answers: []int{200}},
		{name: "empty", shop: g.empty, answers: []int{200, 404}},
		{name: "broken", shop: g.full, answers: []int{200, 503}, down: true},
	}
}

// look opens one page in a tab of its own, and returns what is wrong with it: its status, what check finds, and what the
// browser complains of.
func (g *gallery) look(st state, a address, check func(t *tab, status int) ([]string, error)) (faults []string, err error) {
	t, closing, err := g.visitors[st.shop].another()
	if err != nil {
		return nil, err
	}
	defer closing()
	status, err := t.visit(a.path)
	if err != nil {
		return nil, err
	}
	if refused := a.refused && status == http.StatusBadRequest; !refused && !slices.Contains(st.answers, status) {
		faults = append(faults, fmt.Sprintf("the answer is %d", status))
	}
	found, err := check(t, status)
	return slices.Concat(faults, found, t.complaints()), err
}

// tabsAtOnce is how many tabs are open together.
const tabsAtOnce = 3

// photograph takes the pictures of every page, and fails where one of them is not as it should be.
func (g *gallery) photograph(by asked, stdout io.Writer) error {
	var taken atomic.Int64
	for _, st := range g.states() {
		if err := os.MkdirAll(filepath.Join(by.into, st.name), 0o750); err != nil {
			return err
		}
	}
	var faults int
	for _, st := range g.states() {
		st.shop.faults.Down(st.down)
		found := make([][]string, len(g.addresses))
		var tabs errgroup.Group
		tabs.SetLimit(tabsAtOnce)
		for i, a := range g.addresses {
			if by.only.MatchString(a.name) {
				tabs.Go(func() (err error) {
					found[i], err = g.look(st, a, func(t *tab, _ int) ([]string, error) {
						pictures, err := t.pictures(filepath.Join(by.into, st.name, a.name))
						taken.Add(pictures)
						if err != nil {
							return nil, err
						}
						return t.fits(narrow, phone, desktop)
					})
					return err
				})
			}
		}
		err := tabs.Wait()
		st.shop.faults.Down(false)
		if err != nil {
			return err
		}
		for i, of := range found {
			for _, fault := range of {
				_, _ = fmt.Fprintf(stdout, "%s %s (%s): %s\n", st.name, g.addresses[i].name, g.addresses[i].path, fault)
				faults++
			}
		}
	}
	_, _ = fmt.Fprintf(stdout, "%d pictures in %s\n", taken.Load(), by.into)
	if faults > 0 {
		return fmt.Errorf("%d faults", faults)
	}
	return nil
}

// pictures writes those of a page, to files whose names begin so.
func (t *tab) pictures(name string) (taken int64, err error) {
	for _, scheme := range []string{light, dark} {
		for _, s := range []size{desktop, phone} {
			if err := t.show(s, scheme); err != nil {
				return taken, err
			}
			png, err := t.picture(s)
			if err != nil {
				return taken, err
			}
			if err := os.WriteFile(strings.Join([]string{name, s.name, scheme}, "-")+".png", png, 0o600); err != nil {
				return taken, err
			}
			taken++
		}
	}
	return taken, nil
}

// fits lists what does not fit at each of some sizes, light.
func (t *tab) fits(sizes ...size) (faults []string, err error) {
	for _, s := range sizes {
		if err := t.show(s, light); err != nil {
			return faults, err
		}
		found, err := ask[[]string](t, "faultsOfSize", s.phone)
		if err != nil {
			return faults, err
		}
		for _, fault := range found {
			faults = append(faults, fmt.Sprintf("at %d: %s", s.width, fault))
		}
	}
	return faults, nil
}

// chosenPictures are those of the README.
var chosenPictures = []struct {
	file, page, scheme string
	size               size
}{
	{"overview.png", "overview", light, size{"readme", 1120, 760, false}},
	{"event.png", "events-id-2", dark, size{"readme", 390, 844, true}},
}

// choose takes the pictures of the README.
func (g *gallery) choose(folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for _, one := range chosenPictures {
		i := slices.IndexFunc(g.addresses, func(a address) bool { return a.name == one.page })
		if i < 0 {
			return errors.New("there is no page " + one.page)
		}
		t, closing, err := g.visitors[g.full].another()
		if err != nil {
			return err
		}
		defer closing()
		if err := t.show(one.size, one.scheme); err != nil {
			return err
		}
		if _, err := t.visit(g.addresses[i].path); err != nil {
			return err
		}
		png, err := t.screen()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, one.file), png, 0o600); err != nil {
			return err
		}
	}
	return nil
}
