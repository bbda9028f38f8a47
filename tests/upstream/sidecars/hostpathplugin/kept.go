package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// item is a volume or a snapshot: a folder or, of blocks, a file, and a file that says what it is.
type item struct {
	ID, Name, Source string
	Blocks           bool
	Size             int64
	Made             time.Time
}

// kept is all of them. One call at a time changes anything.
type kept struct {
	sync.Mutex
	dir string
}

func open(dir string) (*kept, error) {
	return &kept{dir: dir}, os.MkdirAll(dir, 0o755)
}

// identified gives the same id to the same name, so that a call that is repeated finds what it has made.
func identified(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return kind + "-" + hex.EncodeToString(sum[:8])
}

func (k *kept) data(id string) string { return filepath.Join(k.dir, id) }

func (k *kept) find(id string) (*item, error) {
	text, err := os.ReadFile(k.data(id) + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := &item{}
	return found, json.Unmarshal(text, found)
}

// make lays the data down before the file that says it is there.
func (k *kept) make(made item, from string) error {
	if err := os.RemoveAll(k.data(made.ID)); err != nil {
		return err
	}
	if made.Blocks {
		if err := k.blocks(made, from); err != nil {
			return err
		}
		return k.note(made)
	}
	if err := os.MkdirAll(k.data(made.ID), 0o777); err != nil {
		return err
	}
	if from != "" {
		if err := exec.Command("cp", "-a", k.data(from)+"/.", k.data(made.ID)).Run(); err != nil {
			return err
		}
	}
	return k.note(made)
}

func (k *kept) blocks(made item, from string) error {
	if from != "" {
		if err := exec.Command("cp", "-a", k.data(from), k.data(made.ID)).Run(); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(k.data(made.ID), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(made.Size), file.Close())
}

func (k *kept) note(made item) error {
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return os.WriteFile(k.data(made.ID)+".json", text, 0o644)
}

func (k *kept) forget(id string) error {
	if err := os.RemoveAll(k.data(id)); err != nil {
		return err
	}
	if err := os.Remove(k.data(id) + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
