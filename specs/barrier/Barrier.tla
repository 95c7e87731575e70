------------------------------ MODULE Barrier ------------------------------
(***************************************************************************)
(* The order of notifications, requests and responses on one connection.   *)
(*                                                                         *)
(* Written from the promises, not from the code. The facts below say which *)
(* design is meant; those of the code are measured, and with them this     *)
(* graph and the graph of the code are equal.                              *)
(*                                                                         *)
(* Not modelled:                                                           *)
(* - prompts and cancels: the domain turns has them, and to the barrier    *)
(*   they are requests and notifications like any other;                   *)
(* - bytes, results and errors: they carry no decision;                    *)
(* - the drain time after the end of input: when it is over the whole      *)
(*   connection is dropped, with this state (tests cover that);            *)
(* - handlers that never return: each of them would hold the queue, which  *)
(*   is what a barrier is; the drain time ends them at the close;          *)
(* - a handler that calls more than once: one call after the other is the  *)
(*   same as a handler that goes on.                                       *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

----------------------------------------------------------------------------
(* Constants: what the peer sends, and who calls it. Messages are numbers   *)
(* from 1, one in exactly one of the first four sets. The peer sends them   *)
(* in any order, but those that differ in nothing in the order of their     *)
(* numbers.                                                                 *)

CONSTANTS
    Notifications,       \* each has a handler on the queue
    Requests,            \* each has a handler of its own
    InputEnds,           \* the peer closes its end: nothing arrives after it
    Calls,               \* no messages: somebody outside of any handler calls the peer, once
    Waits,               \* {m} or {m, r}: the handler of m calls the peer once, which answers at any time, or only
                         \* once its request r has been answered. m is the notification, or else the smaller one
    Drops,               \* whoever calls for these may give up
    QueueMax,            \* how many notifications may wait before the reader waits
    StuckMax             \* and how many while the handler that runs waits for the peer

(* Constants: the facts, each one a choice that some design made.           *)

CONSTANTS
    HandlersRun,         \* "one-by-one", or "at-once": each notification's handler in a task of its own
    ResponsesWait,       \* a response is given once the notifications before it were handled
    CallersComeFirst,    \* a notification waits for the callers whose responses came before it
    LateCallersRelease,  \* for a bounded time only
    RequestsWait,        \* a request starts once the notifications before it were handled
    PeerWaitOpens,       \* but for both: not while the handler that runs waits for the peer
    FullQueue,           \* "waits": the reader does. "closes": the connection does. "drops": the message is gone
    DrainAtClose,        \* what was received before the peer closed is still handled
    CallersToldAtClose   \* whoever waits for the peer then is told

----------------------------------------------------------------------------
(* Variables.                                                               *)

VARIABLES
    at,     \* [message -> its place in the order of arrival, 0 before]                       code: Arrival
    task,   \* [message -> how far its handler has come]                                      code: Stage
    call,   \* [message -> how far the call of its handler, or the call that it is, has come] code: Calls
    after,  \* [message -> the place of the last message before the response, 0 if none waits] code: Barrier
    closed, \* the connection was closed, since a message could not be taken in                code: closed
    breach  \* what must never happen and that no later state would show                       code: -

vars == <<at, task, call, after, closed, breach>>

Messages == Notifications \cup Requests \cup InputEnds \cup Calls
Max(S) == CHOOSE m \in S : \A k \in S : k <= m
Min(S) == CHOOSE m \in S : \A k \in S : m <= k
Waiter(w) == IF w \cap Notifications # {} THEN Min(w \cap Notifications) ELSE Min(w)
Waiters == {Waiter(w) : w \in Waits}

Tasks    == {"absent", "held", "starting", "running", "done", "dropped", "refused"}
CallWords == {"none", "waiting", "kept", "given", "over"}

TypeOK ==
    /\ at \in [Messages -> 0..Cardinality(Messages)]
    /\ task \in [Messages -> Tasks]
    /\ call \in [Messages -> CallWords]
    /\ after \in [Messages -> 0..Cardinality(Messages)]
    /\ closed \in BOOLEAN
    /\ breach \subseteq {"caller", "closed", "request", "response"}
    /\ \A m \in Messages : call[m] # "none" => m \in Calls \cup Waiters

----------------------------------------------------------------------------
(* Helpers.                                                                 *)

Arrived(m) == at[m] > 0
Ended      == \E e \in InputEnds : Arrived(e)
Last       == Cardinality({m \in Messages : Arrived(m)})
Done(m)    == task[m] = "done"

(* Messages that differ in nothing.                                         *)
Same(k, m) ==
    /\ \A S \in {Notifications, Requests, InputEnds, Calls, Drops} : k \in S <=> m \in S
    /\ \A S \in Waits : k \notin S /\ m \notin S

Begun(m) == Arrived(m) \/ call[m] # "none"
MayBegin(m) ==
    /\ ~Begun(m)
    /\ \A k \in Messages : k < m /\ Same(k, m) => Begun(k)
MayArrive(m) == MayBegin(m) /\ ~Ended /\ (m \in InputEnds \/ ~closed)

(* The notifications that are not handled; the first one; whether the       *)
(* handler of one that runs waits for the peer.                             *)
Unhandled(t, a) == {n \in Notifications : a[n] > 0 /\ t[n] \in {"held", "starting", "running"}}
IsFirst(n, t, a) == n \in Unhandled(t, a) /\ \A k \in Unhandled(t, a) : a[n] <= a[k]
PeerWait(t, c) == \E n \in Notifications : t[n] = "running" /\ c[n] = "waiting"
(* Nothing unhandled stands before this place, as the promises have it.     *)
Behind(place, t, a) == \E n \in Unhandled(t, a) : a[n] <= place

(* The state after everything that may go on went on: responses to their    *)
(* callers, then the next notification, then requests. t, c, f are the new  *)
(* tasks, calls and places of responses, a the places of arrival.           *)
Settle(t, c, f, a, b) ==
    LET open(place)  == ~Behind(place, t, a) \/ (PeerWaitOpens /\ PeerWait(t, c))
        rightly(place) == ~Behind(place, t, a) \/ PeerWait(t, c)
        gives(m)     == c[m] = "kept" /\ (ResponsesWait => open(f[m]))
        c1           == [m \in Messages |-> IF gives(m) THEN "given" ELSE c[m]]
        overtakes(n) == \E m \in Messages : c1[m] \in {"kept", "given"} /\ f[m] < a[n]
        starts(n)    == /\ n \in Notifications /\ t[n] = "held"
                        /\ HandlersRun = "one-by-one" => IsFirst(n, t, a) /\ (CallersComeFirst => ~overtakes(n))
        opens(r)     == r \in Requests /\ t[r] = "held" /\ (RequestsWait => open(a[r]))
    IN  /\ task' = [m \in Messages |-> IF starts(m) \/ opens(m) THEN "starting" ELSE t[m]]
        /\ call' = c1
        /\ after' = f
        /\ at' = a
        /\ breach' = b \cup (IF \E m \in Messages : gives(m) /\ ~rightly(f[m]) THEN {"response"} ELSE {})
                       \cup (IF \E n \in Messages : starts(n) /\ overtakes(n) THEN {"caller"} ELSE {})
                       \cup (IF \E r \in Messages : opens(r) /\ ~rightly(a[r]) THEN {"request"} ELSE {})

----------------------------------------------------------------------------
(* Arrivals.                                                                *)

Place(m) == [at EXCEPT ![m] = Last + 1]

(* How many notifications the queue holds at most: the reader that waits    *)
(* reads on while only that can bring what the handler that runs waits for. *)
Queued  == Cardinality(Unhandled(task, at))
HasRoom == FullQueue = "waits" => Queued < QueueMax \/ PeerWait(task, call)
HoldsMax == IF FullQueue = "waits" THEN StuckMax ELSE QueueMax

NotificationArrived(n) ==
    /\ n \in Notifications /\ MayArrive(n) /\ HasRoom
    /\ IF Queued < HoldsMax
       THEN /\ Settle([task EXCEPT ![n] = "held"], call, after, Place(n), breach)
            /\ UNCHANGED closed
       ELSE /\ task' = [task EXCEPT ![n] = IF FullQueue = "drops" THEN "dropped" ELSE "refused"]
            /\ at' = Place(n)
            /\ closed' = (FullQueue # "drops")
            /\ breach' = IF closed' /\ ~PeerWait(task, call) THEN breach \cup {"closed"} ELSE breach
            /\ UNCHANGED <<call, after>>

RequestArrived(r) ==
    /\ r \in Requests /\ MayArrive(r)
    /\ Settle([task EXCEPT ![r] = "held"], call, after, Place(r), breach)
    /\ UNCHANGED closed

(* The handler that waits for its own call gets the response at once: what  *)
(* came before it stands behind that very handler.                          *)
ResponseArrived(m) ==
    /\ call[m] = "waiting" /\ ~Ended /\ ~closed
    /\ \A w \in Waits : Waiter(w) = m => \A r \in w \ {m} : Done(r)
    /\ IF m \in Notifications
       THEN Settle(task, [call EXCEPT ![m] = "over"], after, at, breach)
       ELSE Settle(task, [call EXCEPT ![m] = "kept"], [after EXCEPT ![m] = Last], at, breach)
    /\ UNCHANGED closed

InputEnded(e) ==
    /\ e \in InputEnds /\ MayArrive(e)
    /\ LET c == [m \in Messages |-> IF call[m] = "waiting" /\ CallersToldAtClose THEN "over" ELSE call[m]]
           t == [m \in Messages |->
                    IF ~DrainAtClose /\ m \in Notifications /\ task[m] = "held" THEN "dropped" ELSE task[m]]
       IN  Settle([t EXCEPT ![e] = "done"], c, after, Place(e), breach)
    /\ UNCHANGED closed

----------------------------------------------------------------------------
(* Tasks and callers.                                                       *)

Started(m) ==
    /\ task[m] = "starting"
    /\ task' = [task EXCEPT ![m] = "running"]
    /\ UNCHANGED <<at, call, after, closed, breach>>

Returned(m) ==
    /\ task[m] = "running" /\ call[m] \in {"none", "over"}
    /\ Settle([task EXCEPT ![m] = "done"], call, after, at, breach)
    /\ UNCHANGED closed

(* Once the peer is gone, a caller learns that at once.                     *)
Called(m) ==
    /\ \/ m \in Waiters /\ task[m] = "running" /\ call[m] = "none"
       \/ m \in Calls /\ MayBegin(m)
    /\ Settle(task, [call EXCEPT ![m] = IF Ended THEN "over" ELSE "waiting"], after, at, breach)
    /\ UNCHANGED closed

Over(m) ==
    /\ Settle(task, [call EXCEPT ![m] = "over"], [after EXCEPT ![m] = 0], at, breach)
    /\ UNCHANGED closed

CallDropped(m) == m \in Drops /\ call[m] \in {"waiting", "kept", "given"} /\ Over(m)

Resumed(m) == call[m] = "given" /\ Over(m)

(* Only where a notification waits for the caller does its time run.        *)
ResumeOver(m) ==
    /\ LateCallersRelease
    /\ call[m] = "given"
    /\ \E n \in Notifications : task[n] = "held" /\ IsFirst(n, task, at) /\ after[m] < at[n]
    /\ Over(m)

----------------------------------------------------------------------------
(* The whole.                                                               *)

Init ==
    /\ at = [m \in Messages |-> 0]
    /\ task = [m \in Messages |-> "absent"]
    /\ call = [m \in Messages |-> "none"]
    /\ after = [m \in Messages |-> 0]
    /\ closed = FALSE
    /\ breach = {}

Next == \E m \in Messages :
    \/ NotificationArrived(m)
    \/ RequestArrived(m)
    \/ InputEnded(m)
    \/ ResponseArrived(m)
    \/ Started(m)
    \/ Returned(m)
    \/ Called(m)
    \/ CallDropped(m)
    \/ Resumed(m)
    \/ ResumeOver(m)

Arrives(m) == NotificationArrived(m) \/ RequestArrived(m) \/ InputEnded(m)

(* The peer sends all and answers, tasks run, handlers look at the          *)
(* responses to their calls and return, the time of a late caller ends.     *)
(* Nobody must call or give up, and nobody outside of handlers must look at *)
(* its response.                                                            *)
Fairness == \A m \in Messages :
    /\ WF_vars(Arrives(m))
    /\ WF_vars(ResponseArrived(m))
    /\ WF_vars(Started(m))
    /\ WF_vars(Returned(m))
    /\ WF_vars(ResumeOver(m))
    /\ m \notin Calls => WF_vars(Resumed(m))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
(* The promises.                                                            *)

Runs(n) == task[n] = "running"
TakenIn(n) == Arrived(n) /\ task[n] # "refused"

NotificationsInOrder == \A n, k \in Notifications : Runs(k) /\ Arrived(n) /\ at[n] < at[k] => Done(n)
ResponseAfterEarlierNotifications == "response" \notin breach
ResponseBeforeLaterNotifications == "caller" \notin breach
RequestAfterEarlierNotifications == "request" \notin breach
NoSilentDrop == \A m \in Messages : task[m] # "dropped" /\ (task[m] = "refused" => closed)
FullQueueWaits == "closed" \notin breach /\ Queued <= StuckMax
CallersLearnOfClose == Ended => \A m \in Messages : call[m] # "waiting"

PeerWaitReleases == \A n \in Notifications : call[n] # "none" ~> call[n] = "over"
EveryNotificationIsHandled == \A n \in Notifications : TakenIn(n) ~> Done(n)
DrainedAtClose == \A n \in Notifications : (TakenIn(n) /\ Ended) ~> Done(n)
=============================================================================
