package nvml

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
)

//go:embed boards.json
var boardsJSON []byte

// When a change of MIG mode takes effect.
const (
	migNone       = "none"
	migAtOnce     = "at-once"
	migAfterReset = "after-reset"
)

type board struct {
	Name         string    `json:"name"`
	MemoryMiB    int64     `json:"memoryMiB"`
	Architecture int       `json:"architecture"`
	Capability   string    `json:"capability"`
	PCIDeviceID  string    `json:"pciDeviceID"`
	MIGMode      string    `json:"migMode"`
	Profiles     []profile `json:"profiles"`
}

type profile struct {
	Name      string `json:"name"`
	Index     int    `json:"index"`
	ID        int    `json:"id"`
	Slices    int    `json:"slices"`
	Size      int    `json:"size"`
	MemoryMiB int64  `json:"memoryMiB"`
	Max       int    `json:"max"`
	SM        int    `json:"sm"`
	Copy      int    `json:"copy"`
	Decoder   int    `json:"decoder"`
	JPEG      int    `json:"jpeg"`
	OFA       int    `json:"ofa"`
	Starts    []int  `json:"starts"`
}

var boards = sync.OnceValue(func() map[string]board {
	var file struct {
		Boards map[string]board `json:"boards"`
	}
	if err := json.Unmarshal(boardsJSON, &file); err != nil {
		panic(fmt.Sprintf("boards.json is compiled in and a test reads it: %v", err))
	}
	return file.Boards
})

// Boards are the keys of boards.json, sorted.
func Boards() []string { return slices.Sorted(maps.Keys(boards())) }

func lookupBoard(key string) (board, error) {
	b, ok := boards()[key]
	if !ok {
		return board{}, fmt.Errorf("unknown board %q: boards.json has %v", key, Boards())
	}
	return b, nil
}

func boardOrZero(key string) board { return boards()[key] }

// NewMachine is a machine of count equal boards that has just booted, MIG off. The same seed, e.g. an instance id, gives
// the same UUIDs.
func NewMachine(seed, boardKey string, count int) (State, error) {
	b, err := lookupBoard(boardKey)
	if err != nil {
		return State{}, err
	}
	s := State{Driver: "580.95.05", NVML: "13.580.95.05", CUDA: 13000}
	for i := range count {
		s.GPUs = append(s.GPUs, GPU{
			UUID:      uuid(seed, i),
			Name:      b.Name,
			PCIBusID:  fmt.Sprintf("00000000:%02X:00.0", 0x53+0x11*i%0xa0),
			Board:     boardKey,
			MemoryMiB: b.MemoryMiB,
		})
	}
	return s, nil
}

func uuid(seed string, index int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%d", seed, index))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
