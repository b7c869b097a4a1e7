package gpu

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed data/models.json
var modelsJSON []byte

// table is data/models.json as it is written: every entry with its sources and the day it was read.
type table struct {
	AsOf    string            `json:"asOf"`
	Sources map[string]string `json:"sources"`
	Models  []modelEntry      `json:"models"`
}

// confidenceNoMIG is the confidence of models without MIG.
const confidenceNoMIG = "no MIG"

type modelEntry struct {
	Key           string         `json:"key"`
	ProductNames  []string       `json:"productNames"`
	Architecture  string         `json:"architecture"`
	ComputeSlices int            `json:"computeSlices"`
	MemorySlices  int            `json:"memorySlices"`
	Confidence    string         `json:"confidence"`
	AsOf          string         `json:"asOf"`
	Source        []string       `json:"source"`
	Note          string         `json:"note"`
	Profiles      []profileEntry `json:"profiles"`
}

type profileEntry struct {
	Name          string   `json:"name"`
	NVMLIndex     int      `json:"nvmlIndex"`
	ID            int      `json:"id"`
	IDConfidence  string   `json:"idConfidence"`
	ComputeSlices int      `json:"computeSlices"`
	MemorySlices  int      `json:"memorySlices"`
	MemoryMiB     int64    `json:"memoryMiB"`
	MaxInstances  int      `json:"maxInstances"`
	Placements    [][2]int `json:"placements"`
	Source        []string `json:"source"`
	Note          string   `json:"note"`
}

// models reads the embedded table once, when it is first asked for.
var models = sync.OnceValue(func() []Model {
	t, err := readTable(modelsJSON)
	if err != nil {
		// The file is compiled in and a test reads it: this cannot happen in a build that passed its tests.
		panic(fmt.Sprintf("embedded data/models.json: %v", err))
	}
	out := make([]Model, len(t.Models))
	for i, entry := range t.Models {
		out[i] = entry.model()
	}
	slices.SortFunc(out, func(a, b Model) int { return strings.Compare(a.Key, b.Key) })
	return out
})

func readTable(data []byte) (table, error) {
	var t table
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(&t)
	return t, err
}

func (e modelEntry) model() Model {
	m := Model{
		Key: e.Key, ProductNames: e.ProductNames, Architecture: e.Architecture,
		ComputeSlices: e.ComputeSlices, MemorySlices: e.MemorySlices, Confidence: e.Confidence,
	}
	for _, p := range e.Profiles {
		m.Profiles = append(m.Profiles, p.profile())
	}
	return m
}

func (e profileEntry) profile() Profile {
	p := Profile{
		Name: e.Name, NVMLIndex: e.NVMLIndex, ID: e.ID, ComputeSlices: e.ComputeSlices, MemorySlices: e.MemorySlices,
		MemoryMiB: e.MemoryMiB, MaxInstances: e.MaxInstances, Media: media(e.Name),
	}
	for _, place := range e.Placements {
		p.Placements = append(p.Placements, Placement{Start: place[0], Size: place[1]})
	}
	return p
}

func media(name string) Media {
	switch m := Media(Attribute(name)); m {
	case MediaOne, MediaAll, MediaNone:
		return m
	default: // "+gfx" has the ordinary share
		return MediaShared
	}
}

// Lookup finds a model by its key. What it returns shares memory with the table: read it, do not change it.
func Lookup(key string) (Model, bool) {
	all := models()
	i, found := slices.BinarySearchFunc(all, key, func(m Model, key string) int { return strings.Compare(m.Key, key) })
	if !found {
		return Model{}, false
	}
	return all[i], true
}

// Models lists every model by key. What it returns shares memory with the table: read it, do not change it.
func Models() []Model { return slices.Clone(models()) }

// MIGKeys lists the keys of the models that layouts can be made for.
func MIGKeys() []string {
	var keys []string
	for _, m := range models() {
		if m.MIGCapable() {
			keys = append(keys, m.Key)
		}
	}
	return keys
}
