package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// What loop devices understand. Source: linux/loop.h.
const (
	loopClear     = 0x4C01
	loopStatus    = 0x4C05
	loopCapacity  = 0x4C07
	loopConfigure = 0x4C0A
	loopFree      = 0x4C82
)

// loopInfo is loop_info64.
type loopInfo struct {
	device, inode, rdevice, offset, limit uint64
	number, encryption, keySize, flags    uint32
	name, cryptName                       [64]byte
	key                                   [32]byte
	init                                  [2]uint64
}

// loopConfig is loop_config.
type loopConfig struct {
	file, blockSize uint32
	info            loopInfo
	reserved        [8]uint64
}

func ioctl(file *os.File, request, argument uintptr) (uintptr, error) {
	answer, _, code := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, argument)
	if code != 0 {
		return 0, &os.PathError{Op: "ioctl", Path: file.Name(), Err: code}
	}
	return answer, nil
}

// named is what a device says of what it is for. Its file's path would be another one for each instance of the driver.
func named(id string) string { return "hostpath " + id }

// attached finds the device of a volume, open; nil if there is none.
func attached(id string) (*os.File, error) {
	all, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		var info loopInfo
		if _, err := ioctl(device, loopStatus, uintptr(unsafe.Pointer(&info))); err == nil {
			if strings.TrimRight(string(info.name[:]), "\x00") == named(id) {
				return device, nil
			}
		}
		_ = device.Close()
	}
	return nil, nil
}

// attach gives a volume's file a device, unless it has one.
func attach(id, path string) error {
	if device, err := attached(id); err != nil || device != nil {
		return errors.Join(err, closed(device))
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	// Another one may take the number in between.
	for range 16 {
		number, err := ioctl(control, loopFree, 0)
		if err != nil {
			return err
		}
		device, err := os.OpenFile("/dev/loop"+strconv.Itoa(int(number)), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		config := loopConfig{file: uint32(file.Fd())}
		copy(config.info.name[:], named(id))
		_, err = ioctl(device, loopConfigure, uintptr(unsafe.Pointer(&config)))
		_ = device.Close()
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	return syscall.EBUSY
}

// detach takes the device of a volume away, if it has one.
func detach(id string) error {
	device, err := attached(id)
	if err != nil || device == nil {
		return err
	}
	_, err = ioctl(device, loopClear, 0)
	return errors.Join(err, closed(device))
}

// grown has the device of a volume see how large its file is now.
func grown(id string) error {
	device, err := attached(id)
	if err != nil || device == nil {
		return err
	}
	_, err = ioctl(device, loopCapacity, 0)
	return errors.Join(err, closed(device))
}

func closed(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}
