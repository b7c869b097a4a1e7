package main

import (
	"testing"
	"time"
)

func TestPage_CountsWhatATerminalShows(t *testing.T) {
	for text, want := range map[string]int{
		"":          0,
		"pool":      4,
		"größe":     5,
		"gro\u0308": 3, // o and a mark that combines with it
		"推論":        4,
		"…":         1,
	} {
		if got := columns(text); got != want {
			t.Errorf("columns(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestPage_TableKeepsItsColumnsWithEveryScript(t *testing.T) {
	p := &page{}
	p.table(2, []column{{head: "A"}, {head: "B", right: true}, {head: "C"}}, [][]cell{cells("推論", "1", "x"), cells("größe", "10", "y")})
	if want := "  A       B  C\n  推論    1  x\n  größe  10  y\n"; p.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", p.String(), want)
	}
}

func TestPage_CutsBetweenCharacters(t *testing.T) {
	p := &page{width: 10}
	for _, tc := range []struct {
		used int
		text string
		want string
	}{
		{0, "exactly 10", "exactly 10"}, {0, "eleven long", "eleven lo…"}, {4, "推論推論", "推論…"}, {5, "推論推論", "推論…"}, {6, "推論推論", "推…"}, {9, "推論", "…"}, {10, "x", "…"},
	} {
		if got := p.cut(tc.text, tc.used); got != tc.want || columns(got) > max(p.width-tc.used, 1) {
			t.Errorf("cut(%q, %d) = %q, want %q", tc.text, tc.used, got, tc.want)
		}
	}
}

func TestPage_WrapsAtWordsAndNeverLosesOne(t *testing.T) {
	p := &page{width: 24}
	p.hanging("  Why  ", plain, "limit gpus is reached, and a-word-that-is-longer-than-the-line stays whole")
	// 17 columns are too few to wrap to.
	if p.String() != "  Why  limit gpus is reached, and a-word-that-is-longer-than-the-line stays whole\n" {
		t.Errorf("printed\n%s", p.String())
	}
	p = &page{width: 28}
	p.hanging("  Why  ", plain, "limit gpus is reached, and a-word-that-is-longer-than-the-line stays whole")
	want := "  Why  limit gpus is\n" +
		"       reached, and\n" +
		"       a-word-that-is-longer-than-the-line\n" +
		"       stays whole\n"
	if p.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", p.String(), want)
	}
}

// What a cloud, a scheduler or the name of an image says must not move the cursor or colour the screen.
func TestPage_LeavesOutWhatControlsATerminal(t *testing.T) {
	p := &page{}
	p.prose(0, "a\x1b[2Jb\r\nc\x07\td\u009b31me")
	p.fields(0, []field{{"Label", "\x1b]0;title\x07x"}})
	p.table(0, []column{{head: "A"}, {head: "B"}}, [][]cell{cells("\x1b[31mred", "\x1b[0m")})
	if want := "a[2Jb  c d31me\nLabel  ]0;titlex\nA        B\n[31mred  [0m\n"; p.String() != want {
		t.Errorf("printed %q, want %q", p.String(), want)
	}
}

func TestAge_HasTwoUnitsAtMost(t *testing.T) {
	for span, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 252 * time.Second: "4m12s", time.Hour: "1h",
		185 * time.Minute: "3h5m", 25 * time.Hour: "1d1h", 48 * time.Hour: "2d", 400 * 24 * time.Hour: "400d",
	} {
		if got := age(span); got != want {
			t.Errorf("age(%s) = %q, want %q", span, got, want)
		}
	}
}

func TestNear_ProposesWhatMayHaveBeenMeant(t *testing.T) {
	all := []string{"inference", "inference-eu", "batch", "research"}
	for name, want := range map[string]string{
		"inferenec": "inference inference-eu", "infrence": "inference", "batsh": "batch", "xyz": "", "reserch": "research", "eu": "inference-eu",
	} {
		got := ""
		for i, one := range near(name, all) {
			if i > 0 {
				got += " "
			}
			got += one
		}
		if got != want {
			t.Errorf("near(%q) = %q, want %q", name, got, want)
		}
	}
}
