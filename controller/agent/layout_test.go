package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestPass_ChangesABoardOnlyWhereItDiffersFromTheLayout(t *testing.T) {
	three := []v1alpha1.MIGInstance{wanted("1g.10gb", 1, 0, 1), wanted("3g.40gb", 3, 4, 4)}
	with := func(b *fakeBoard, instances ...Instance) *fakeBoard { b.instances = instances; return b }
	one, big := Instance{1, 19, Placement{0, 1}, true}, Instance{2, 9, Placement{4, 4}, true}
	for _, tc := range []struct {
		name   string
		board  *fakeBoard
		wanted []v1alpha1.MIGInstance
		calls  []string
	}{
		{"a new board is cut", h100(false), three, []string{"mode true", "create 1g.10gb 0:1", "create 3g.40gb 4:4"}},
		{"an equal board is left alone", with(h100(true), big, one), three, nil},
		{"what is missing is created", with(h100(true), big), three, []string{"create 1g.10gb 0:1"}},
		{"what is foreign is destroyed first", with(h100(true), one, Instance{3, 14, Placement{4, 2}, true}), three,
			[]string{"destroy 4:2", "create 3g.40gb 4:4"}},
		{"the same place with other engines is foreign", with(h100(true), one), []v1alpha1.MIGInstance{wanted("1g.10gb+me", 1, 0, 1)},
			[]string{"destroy 0:1", "create 1g.10gb+me 0:1"}},
		{"an instance that a crash left without compute instance is made again", with(h100(true), big, Instance{1, 19, Placement{0, 1}, false}), three,
			[]string{"destroy 0:1", "create 1g.10gb 0:1"}},
		{"the double memory profile is not the plain one", h100(true), []v1alpha1.MIGInstance{wanted("1g.20gb", 1, 6, 2)},
			[]string{"create 1g.20gb 6:2"}},
		{"a profile that the driver names otherwise is found by its slices and place", h100(true), []v1alpha1.MIGInstance{wanted("3g.39gb", 3, 0, 4)},
			[]string{"create 3g.40gb 0:4"}},
		{"MIG mode that the next reset would end is set again", func() *fakeBoard { b := h100(true); b.mode.PendingEnabled = false; return b }(),
			[]v1alpha1.MIGInstance{wanted("2g.20gb", 2, 0, 2)}, []string{"mode true", "create 2g.20gb 0:2"}},
		{"C17: a board that stays whole leaves MIG mode", with(h100(true), one), nil, []string{"destroy 0:1", "mode false"}},
		{"a whole board is left alone", h100(false), nil, nil},
		{"a board that cannot do MIG and need not is left alone", &fakeBoard{name: "Tesla T4"}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inv := pass(t.Context(), &fakeLibrary{boards: []*fakeBoard{tc.board}}, layoutOf(tc.wanted, 0))
			if inv.Failure != nil {
				t.Fatalf("failure %+v", inv.Failure)
			}
			if diff := cmp.Diff(tc.calls, tc.board.calls); diff != "" {
				t.Error(diff)
			}
			again := len(tc.board.calls)
			pass(t.Context(), &fakeLibrary{boards: []*fakeBoard{tc.board}}, layoutOf(tc.wanted, 0))
			if len(tc.board.calls) != again {
				t.Errorf("a second pass did %q", tc.board.calls[again:])
			}
		})
	}
}

func TestPass_ReportsTheStepThatFailedAndGoesOnWithTheOtherBoards(t *testing.T) {
	for _, tc := range []struct {
		name    string
		board   *fakeBoard
		step    string
		message string
	}{
		{"no MIG", &fakeBoard{name: "Tesla T4"}, stepSetMode, "GPU 0: the layout wants 7 MIG instances of a board that cannot do MIG"},
		{"mode does not change", &fakeBoard{mode: MIGMode{Capable: true}, stuck: true}, stepSetMode, "changed nothing"},
		{"C16: the GPU is in use", &fakeBoard{mode: MIGMode{Capable: true}, held: true}, stepSetMode, "GPU 0: In use by another client"},
		{"no such profile", &fakeBoard{mode: MIGMode{true, true, true}, profiles: h100(true).profiles[3:]}, stepCreate,
			"no MIG profile like 1g.10gb with 1 compute slices at 0:1; it offers 2g.20gb, 3g.40gb"},
		{"create fails", func() *fakeBoard { b := h100(true); b.createErr = errors.New("Insufficient Resources"); return b }(), stepCreate, "GPU 0: Insufficient Resources"},
		{"board lost", &fakeBoard{lost: true}, stepRead, "GPU 0: GPU is lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := h100(false)
			inv := pass(t.Context(), &fakeLibrary{boards: []*fakeBoard{tc.board, other}}, layoutOf(sevenOnes(), 0, 1))
			if inv.Failure == nil || inv.Failure.Step != tc.step || !strings.Contains(inv.Failure.Message, tc.message) {
				t.Errorf("failure %+v, want step %s with %q", inv.Failure, tc.step, tc.message)
			}
			if len(other.instances) != 7 {
				t.Errorf("the other board has %d instances, want 7", len(other.instances))
			}
			if last := inv.GPUs[len(inv.GPUs)-1]; len(last.MIG.Instances) != 7 {
				t.Errorf("the other board is reported with %d instances, want 7", len(last.MIG.Instances))
			}
		})
	}
}

func TestPass_C13_ReportsWhatIsThereAndNotWhatCreateSaid(t *testing.T) {
	board := h100(true)
	board.silent = true
	inv := pass(t.Context(), &fakeLibrary{boards: []*fakeBoard{board}}, layoutOf(sevenOnes(), 0))
	if inv.Failure != nil {
		t.Errorf("failure %+v: every call succeeded", inv.Failure)
	}
	if got := instances(inv); got != 0 {
		t.Errorf("%d instances reported, none exists", got)
	}
}

func TestPass_LeavesGPUsThatTheMachineLacksToVerification(t *testing.T) {
	inv := pass(t.Context(), &fakeLibrary{boards: []*fakeBoard{h100(false)}}, layoutOf(sevenOnes(), 0, 1))
	if inv.Failure != nil || len(inv.GPUs) != 1 || instances(inv) != 7 {
		t.Errorf("failure %+v, %d GPUs, %d instances; want none, 1, 7", inv.Failure, len(inv.GPUs), instances(inv))
	}
}

func TestPass_WithoutALayoutTouchesNothing(t *testing.T) {
	board := h100(true)
	board.instances = []Instance{{1, 14, Placement{2, 2}, true}}
	inv := pass(t.Context(), &fakeLibrary{boards: []*fakeBoard{board}}, nil)
	if board.calls != nil {
		t.Errorf("calls %q", board.calls)
	}
	want := []v1alpha1.MIGInstance{wanted("2g.20gb", 2, 2, 2)}
	if diff := cmp.Diff(want, inv.GPUs[0].MIG.Instances); diff != "" {
		t.Error(diff)
	}
}

func TestProfileName_IsWhatNVIDIAPrints(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		want                  string
		index                 int
		slices                int32
		memoryMiB, boardBytes uint64
	}{
		// A100 40GB and 80GB, H100 80GB, H200, A30: nvidia-smi mig -lgip.
		{"1g.5gb", 0, 1, 4864, 40960 * mib},
		{"1g.5gb+me", 7, 1, 4864, 40960 * mib},
		{"7g.40gb", 4, 7, 40192, 40960 * mib},
		{"1g.20gb", 9, 1, 19968, 81920 * mib},
		{"1g.10gb", 0, 1, 9984, 81559 * mib},
		{"3g.40gb", 2, 3, 40448, 81559 * mib},
		{"1g.18gb", 0, 1, 16384, 143771 * mib},
		{"3g.71gb", 2, 3, 71168, 143771 * mib},
		{"1g.6gb", 0, 1, 5952, 24576 * mib},
		{"2g.12gb+me", 8, 2, 12032, 24576 * mib},
	} {
		if got := profileName(tc.index, tc.slices, tc.memoryMiB, tc.boardBytes); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
