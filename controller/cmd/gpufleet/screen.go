package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// screenOf is the terminal that w writes to.
func screenOf(w io.Writer) (screen, bool) {
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return screen{}, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return screen{}, false
	}
	return screen{width: width, height: height}, true
}
