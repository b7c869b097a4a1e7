package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

// adminHandler is the admin port: README.md beside this file is its documentation.
func (r *Region) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/instances", r.getInstances)
	mux.HandleFunc("GET /v1/calls", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, r.calls.all()) })
	mux.HandleFunc("GET /v1/faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, r.faults.all()) })
	mux.HandleFunc("GET /v1/faults/{name}", r.getFault)
	mux.HandleFunc("PUT /v1/faults/{name}", r.putFault)
	mux.HandleFunc("DELETE /v1/faults/{name}", r.deleteFault)
	mux.HandleFunc("GET /v1/capacity", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, r.capacity.all()) })
	mux.HandleFunc("PUT /v1/capacity", r.putCapacity)
	mux.HandleFunc("GET /v1/quotas", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, r.allQuotas()) })
	mux.HandleFunc("PUT /v1/quotas", r.putQuotas)
	mux.HandleFunc("PATCH /v1/machines/{id}", r.patchMachine)
	mux.HandleFunc("POST /v1/machines/{id}/kill", r.killMachine)
	mux.HandleFunc("POST /v1/reset", r.reset)
	return mux
}

func (r *Region) getInstances(w http.ResponseWriter, _ *http.Request) {
	at, out := time.Now(), []Instance{}
	for _, row := range r.books.all() {
		out = append(out, row.row(at))
	}
	writeJSON(w, http.StatusOK, out)
}

func (r *Region) getFault(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	if err := checkFaultName(name); err != nil {
		writeProblem(w, http.StatusNotFound, err)
		return
	}
	writeJSON(w, http.StatusOK, r.faults.all()[name])
}

func (r *Region) putFault(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	if err := r.faults.put(name, body); err != nil {
		writeProblem(w, faultStatus(err), err)
		return
	}
	r.logf("fault %s set: %s", name, body)
	writeJSON(w, http.StatusOK, r.faults.all()[name])
}

func (r *Region) deleteFault(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	if err := r.faults.remove(name); err != nil {
		writeProblem(w, faultStatus(err), err)
		return
	}
	r.logf("fault %s cleared", name)
	w.WriteHeader(http.StatusNoContent)
}

func faultStatus(err error) int {
	if errors.Is(err, errUnknownFault) {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

func (r *Region) putCapacity(w http.ResponseWriter, req *http.Request) {
	var list []Capacity
	if err := readJSON(w, req, &list); err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	if err := r.capacity.put(list); err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	writeJSON(w, http.StatusOK, r.capacity.all())
}

// machinePatch is the body of PATCH /v1/machines/{id}.
type machinePatch struct {
	NVML struct {
		// Driver replaces the driver's version.
		Driver string `json:"driver"`
		// GPUs keeps the first boards only, or brings back, bare and at the end, those that are missing.
		GPUs *int `json:"gpus"`
	} `json:"nvml"`
}

func (r *Region) patchMachine(w http.ResponseWriter, req *http.Request) {
	var patch machinePatch
	if err := readJSON(w, req, &patch); err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	row, ok := r.books.find(req.PathValue("id"))
	if !ok {
		writeProblem(w, http.StatusNotFound, fmt.Errorf("there never was an instance %s", req.PathValue("id")))
		return
	}
	if row.state != stateRunning || r.cluster == nil {
		writeProblem(w, http.StatusConflict, fmt.Errorf("instance %s is %s: only a machine that runs and boots has boards", row.id, row.state))
		return
	}
	m := &machine{region: r, row: &row, dir: r.machineDir(row.id)}
	err := nvml.Update(m.statePath(), func(s *nvml.State) error { return patch.apply(s, boardsOf(row.id, row.kind, r.catalog)) })
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (p machinePatch) apply(s *nvml.State, whole nvml.State) error {
	if p.NVML.Driver != "" {
		s.Driver = p.NVML.Driver
	}
	if p.NVML.GPUs == nil {
		return nil
	}
	want := *p.NVML.GPUs
	if want < 0 || want > len(whole.GPUs) {
		return fmt.Errorf("nvml.gpus is %d: this machine has room for 0 to %d", want, len(whole.GPUs))
	}
	for _, board := range whole.GPUs {
		has := slices.ContainsFunc(s.GPUs, func(g nvml.GPU) bool { return g.UUID == board.UUID })
		if len(s.GPUs) < want && !has {
			s.GPUs = append(s.GPUs, board)
		}
	}
	s.GPUs = s.GPUs[:want]
	return nil
}

// killMachine ends an instance that nobody asked to end, as failing hardware does.
func (r *Region) killMachine(w http.ResponseWriter, req *http.Request) {
	id := req.PathValue("id")
	_, after, found := r.books.shutDown(id, stateReason{"Server.InternalError", "Server.InternalError: the machine failed (killed through the admin port)"})
	if !found {
		writeProblem(w, http.StatusNotFound, fmt.Errorf("there never was an instance %s", id))
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"id": id, "state": after})
}

func (r *Region) reset(w http.ResponseWriter, _ *http.Request) {
	r.faults.clear()
	// An empty list is always valid.
	_ = r.capacity.put(nil)
	_ = r.quotas.put(nil)
	r.logf("faults, capacity and quotas reset")
	w.WriteHeader(http.StatusNoContent)
}

func readJSON(w http.ResponseWriter, req *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	return nil
}

func writeProblem(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	out, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller that has gone away is no error of the region's.
	_, _ = w.Write(append(out, '\n'))
}
