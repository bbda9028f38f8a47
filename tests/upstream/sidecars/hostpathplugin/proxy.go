package main

import (
	"io"
	"log"
	"net"
	"os"
	"strings"
)

// proxy joins each connection to the socket with the next one to the port, so that who is asked may be elsewhere: the driver of
// devices of e2e.test is in that program.
func proxy(socket, endpoint string) {
	_ = os.Remove(socket)
	asked, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	answering, err := net.Listen("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		log.Fatal(err)
	}
	for {
		one, err := asked.Accept()
		if err != nil {
			log.Fatal(err)
		}
		other, err := answering.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go join(one, other)
		go join(other, one)
	}
}

func join(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
