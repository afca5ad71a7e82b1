// Ports, names and ways between machines.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_network() {
  return {
      {.code = "LS-305",
       .title = "The port is in use",
       .symptom = "'Address already in use', 'EADDRINUSE', 'port 29500 is in use by pid ...'.",
       .cause = "Another run, or one that has not ended, listens at the port.",
       .fix = "another program took the port meanwhile: start again, or choose one with --port",
       .patterns = {"address already in use", "eaddrinuse", "port * is in use by", "ports from * are in use", "machine 0 cannot listen at",
                    "errno: 98", "but another process is utilizing it"}},
      {.code = "LS-306",
       .title = "A host name does not resolve",
       .symptom = "'Name or service not known', 'getaddrinfo failed', 'the name ... does not resolve'.",
       .cause = "This machine does not know the name that --master-addr (MASTER_ADDR) gives, or its own.",
       .fix = "`getent hosts NAME` shows what this machine knows; use an IP address, or add the name to DNS or /etc/hosts",
       .patterns = {"name or service not known", "does not resolve", "temporary failure in name resolution", "getaddrinfo",
                    "nodename nor servname provided", "the hostname of the client socket cannot be retrieved",
                    "could not resolve hostname"}},
      {.code = "LS-307",
       .title = "Machines cannot reach each other",
       .symptom =
           "'Gloo connectFullMesh failed', 'No route to host', 'Network is unreachable', connections to 127.0.1.1 or a Docker address.",
       .cause =
           "Ranks listen on an address that the others cannot reach: the wrong network interface, a firewall between machines, or a host "
           "name that stands for 127.0.1.1 in /etc/hosts.",
       .fix = "name the interface that connects the machines: GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; open all ports between them",
       .patterns = {"connectfullmesh failed", "no route to host", "network is unreachable", "could not connect to all other ranks by gloo",
                    "connect() * timed out", "connect() timed out", "connection timed out", "no socket interface",
                    "unable to find address for", "socketstartconnect: connect to"}},
      {.code = "LS-317",
       .title = "InfiniBand lost a message",
       .symptom = "NCCL's 'Got completion from peer ... with status=12', 'vendor err 129'.",
       .cause =
           "The network card of the other machine did not answer in time: its rank has ended, a cable, port or switch fails, or the cards "
           "of both machines cannot reach each other (RoCE with another GID or without flow control).",
       .fix = "look for a rank that ended first; `ibstat` and `ibv_devinfo` show ports that are down; NCCL_IB_HCA chooses cards, "
              "NCCL_IB_GID_INDEX "
              "the address of RoCE; NCCL_IB_DISABLE=1 goes over sockets",
       .patterns = {"got completion * with status", "ibv_wc_retry_exc_err", "transport retry counter exceeded"}},
  };
}

}  // namespace lockstep::catalog
