package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// page is text for people. It wraps lines and cuts tables to the width of a terminal, and colours words where that is
// wanted.
type page struct {
	bytes.Buffer
	// width is how many characters a line has; 0 where it does not matter, as on a pipe.
	width  int
	colour bool
}

// style is how a word looks on a terminal: parameters of SGR (ECMA-48, 8.3.117).
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

func (p *page) styled(s style, text string) string {
	if !p.colour || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) gap() { p.WriteByte('\n') }

// head is a heading of what follows, set apart from what is before.
func (p *page) head(text string) {
	if p.Len() > 0 {
		p.gap()
	}
	p.line("%s", p.styled(bold, text))
}

// prose writes text behind an indent, wrapped at words.
func (p *page) prose(indent int, text string) { p.hanging(strings.Repeat(" ", indent), plain, text) }

// hanging writes text behind a label; the lines after the first begin where the text does.
func (p *page) hanging(label string, s style, text string) {
	indent := columns(label)
	for i, line := range p.wrap(clean(text), indent) {
		if i > 0 {
			label = strings.Repeat(" ", indent)
			s = plain
		}
		p.line("%s", strings.TrimRight(p.styled(s, label)+line, " "))
	}
}

// minimal is the least width that text is wrapped to: what is narrower is left to the terminal.
const minimal = 20

func (p *page) wrap(text string, indent int) []string {
	room := p.width - indent
	if p.width == 0 || room < minimal {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && columns(line)+1+columns(word) > room {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// field is a label with what belongs to it.
type field struct{ label, text string }

// fields writes labels and texts in two columns; those without text are left out.
func (p *page) fields(indent int, fields []field) {
	widest := 0
	for _, f := range fields {
		if f.text != "" {
			widest = max(widest, columns(f.label))
		}
	}
	for _, f := range fields {
		if f.text != "" {
			p.hanging(strings.Repeat(" ", indent)+pad(f.label, widest, false)+"  ", dim, f.text)
		}
	}
}

// column is one of a table.
type column struct {
	head string
	// right sets numbers flush right.
	right bool
	// spare columns are left out where the table is too wide, that with the highest number first; 0 stays.
	spare int
}

// cell is what stands in a column of a row.
type cell struct {
	text  string
	style style
}

// cells are plain.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i] = cell{text: text}
	}
	return row
}

const gutter = "  "

// legible is how much of the last column is worth more than the columns that may be left out.
const legible = 40

// table writes rows under their heads. On a terminal it leaves out spare columns until it fits, and cuts the last one.
func (p *page) table(indent int, heads []column, rows [][]cell) {
	shown := p.fitting(indent, heads, rows)
	widths := make([]int, len(heads))
	for _, i := range shown {
		widths[i] = widest(heads, rows, i)
	}
	top := make([]cell, len(heads))
	for i, head := range heads {
		top[i] = cell{text: head.head, style: dim}
	}
	for _, row := range append([][]cell{top}, rows...) {
		var line strings.Builder
		used := indent
		line.WriteString(strings.Repeat(" ", indent))
		for n, i := range shown {
			text := clean(row[i].text)
			switch last := n == len(shown)-1; {
			case last && !heads[i].right:
				text = p.cut(text, used)
			default:
				text = pad(text, widths[i], heads[i].right)
			}
			line.WriteString(p.styled(row[i].style, text))
			if n < len(shown)-1 {
				line.WriteString(gutter)
			}
			used += widths[i] + len(gutter)
		}
		p.line("%s", strings.TrimRight(line.String(), " "))
	}
}

// fitting are the indexes of the columns that are shown.
func (p *page) fitting(indent int, heads []column, rows [][]cell) []int {
	shown := make([]int, len(heads))
	for i := range heads {
		shown[i] = i
	}
	for p.width > 0 {
		total, spare := indent, -1
		for n, i := range shown {
			wide := widest(heads, rows, i)
			if n == len(shown)-1 {
				wide = min(wide, legible)
			}
			total += wide + len(gutter)
			if heads[i].spare > 0 && (spare < 0 || heads[i].spare > heads[shown[spare]].spare) {
				spare = n
			}
		}
		if total-len(gutter) <= p.width || spare < 0 {
			break
		}
		shown = append(shown[:spare:spare], shown[spare+1:]...)
	}
	return shown
}

func widest(heads []column, rows [][]cell, i int) int {
	most := columns(heads[i].head)
	for _, row := range rows {
		most = max(most, columns(clean(row[i].text)))
	}
	return most
}

// cut shortens text to what is left of a line, so that a row stays one line.
func (p *page) cut(text string, used int) string {
	room := p.width - used
	if p.width == 0 || columns(text) <= room {
		return text
	}
	var kept strings.Builder
	left := room - 1 // the ellipsis
	for _, r := range text {
		if left -= runeColumns(r); left < 0 {
			break
		}
		kept.WriteRune(r)
	}
	return kept.String() + "…"
}

func pad(text string, to int, right bool) string {
	blank := strings.Repeat(" ", max(to-columns(text), 0))
	if right {
		return blank + text
	}
	return text + blank
}

// clean leaves out what would move a terminal's cursor or colour its lines: messages come from clouds, schedulers and pods.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
}

// columns is how wide text is on a terminal.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

// runeColumns: East Asian wide characters take two columns, marks that combine with the one before take none.
func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
