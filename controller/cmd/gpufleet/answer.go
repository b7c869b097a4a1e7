package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// report is what a command found. It is what -o json and -o yaml print, and all that text is made of.
type report interface {
	text(p *page)
	// held says that something is held: the exit code.
	held() bool
	// remarks are said beside the text: how old something is, and what could not be read.
	remarks() []string
}

// about begins every report.
type about struct {
	// At is when the cluster was read.
	At         metav1.Time      `json:"at"`
	Controller controllerReport `json:"controller"`
	// Notes are what could not be read, and what that means.
	Notes []string `json:"notes,omitempty"`
}

func (s *snapshot) about() about {
	return about{At: metav1.NewTime(s.at), Controller: s.heard(), Notes: s.notes}
}

func (a about) remarks() []string {
	if a.Controller.Message == "" {
		return a.Notes
	}
	return append([]string{a.Controller.Message}, a.Notes...)
}

// asking finds something out about a cluster.
type asking func(ctx context.Context, c *cluster) (report, error)

// answer prints what was asked.
func (p program) answer(cmd *cobra.Command, o *options, ask asking) error {
	c, err := p.open(o)
	if err != nil {
		return err
	}
	r, err := ask(cmd.Context(), c)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	return p.print(cmd, o, r)
}

func (p program) open(o *options) (*cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return p.connect(*o, p.getenv)
}

// print writes a report and returns errHeld where something is held. Remarks on a text go to standard error, so that
// standard output has the answer alone.
func (p program) print(cmd *cobra.Command, o *options, r report) error {
	out := cmd.OutOrStdout()
	var err error
	switch o.output {
	case formatJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	case formatYAML:
		var text []byte
		if text, err = yaml.Marshal(r); err == nil {
			_, err = out.Write(text)
		}
	default:
		for _, remark := range r.remarks() {
			fmt.Fprintln(cmd.ErrOrStderr(), remark)
		}
		page := p.page(out, o)
		r.text(page)
		_, err = page.WriteTo(out)
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if r.held() {
		return errHeld
	}
	return nil
}

// page is an empty page for w. Colours are for terminals whose user did not say no (https://no-color.org).
func (p program) page(w io.Writer, o *options) *page {
	s, terminal := p.screen(w)
	if !terminal {
		return &page{}
	}
	return &page{width: s.width, colour: p.colours(o)}
}

func (p program) colours(o *options) bool {
	return !o.noColor && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb"
}
