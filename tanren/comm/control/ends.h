// The two ends of the control channel, each the body of one thread: the server on rank 0, a client
// on every other rank. messages.h describes their messages. Both return soon after the mailbox's
// stop, and then close their connections, so that the other ends notice. Called by control.cpp.
#pragma once

#include "tanren/comm/control/mailbox.h"
#include "tanren/comm/control/messages.h"

namespace tanren {

void run_control_server(Socket listener, ControlMailbox& mailbox);
// `socket` is connected to the server's listener.
void run_control_client(Socket socket, ControlMailbox& mailbox);

}  // namespace tanren
