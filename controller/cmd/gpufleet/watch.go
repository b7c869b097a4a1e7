package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// watch answers again and again, until it is interrupted. It ends as what it showed last would have ended. What goes wrong
// after the first answer is shown and passes: the server may come back.
func (p program) watch(cmd *cobra.Command, o *options, interval time.Duration, ask asking) error {
	if interval <= 0 {
		return fmt.Errorf("--interval %s: give a time above 0, such as 2s", interval)
	}
	c, err := p.open(o)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	for first := true; ; first = false {
		r, asked := ask(ctx, c)
		switch {
		case ctx.Err() != nil && first:
			return errors.New("interrupted")
		case ctx.Err() != nil:
			return err
		case asked != nil && first:
			return asked
		case asked != nil:
			err = asked
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v; trying again\n", p.now().Format(time.TimeOnly), asked)
		default:
			if err = p.frame(cmd, o, r, first); err != nil && !errors.Is(err, errHeld) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interval):
		}
	}
}

// frame shows one answer: a line of JSON, a document of YAML, or text, which takes the place of the one before on a
// terminal and is appended elsewhere.
func (p program) frame(cmd *cobra.Command, o *options, r report, first bool) error {
	out := cmd.OutOrStdout()
	s, terminal := p.screen(out)
	var text []byte
	var err error
	switch {
	case o.output == formatJSON:
		text, err = json.Marshal(r)
		text = append(text, '\n')
	case o.output == formatYAML:
		text, err = yaml.Marshal(r)
		text = append([]byte("---\n"), text...)
	case terminal:
		text = p.redraw(o, r, s)
		if first {
			text = append([]byte(clearScreen), text...)
		}
	default:
		page := &page{}
		if !first {
			page.gap()
		}
		page.line("%s", p.now().Format(time.RFC3339))
		for _, remark := range r.remarks() {
			fmt.Fprintln(cmd.ErrOrStderr(), remark)
		}
		r.text(page)
		text = page.Bytes()
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if r.held() {
		return errHeld
	}
	return nil
}

// Control sequences (ECMA-48): the cursor to the first line, the end of a line and of the screen cleared.
const (
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	clearScreen = home + clearBelow
)

// redraw writes a frame over the one before, line by line, so that nothing flickers. What the terminal has no lines for is
// left out.
func (p program) redraw(o *options, r report, s screen) []byte {
	page := &page{width: s.width, colour: p.colours(o)}
	for _, remark := range r.remarks() {
		page.hanging("", plain, remark)
	}
	r.text(page)
	lines := strings.Split(strings.TrimSuffix(page.String(), "\n"), "\n")
	if over := len(lines) - (s.height - 1); s.height > 1 && over > 0 {
		lines = append(lines[:s.height-2], fmt.Sprintf("... %d lines more", over+1))
	}
	var frame strings.Builder
	frame.WriteString(home)
	for _, line := range lines {
		frame.WriteString(line + clearLine + "\n")
	}
	frame.WriteString(clearBelow)
	return []byte(frame.String())
}
