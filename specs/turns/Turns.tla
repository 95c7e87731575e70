------------------------------- MODULE Turns -------------------------------
(***************************************************************************)
(* Prompts and cancels of the sessions of one connection.                  *)
(*                                                                         *)
(* Written from the promises, not from the code. It covers two designs:    *)
(* one decides on a message when it arrives, at the door; the other one    *)
(* decides in the task of the message's handler, when that comes to it.    *)
(* The facts below say which design is meant. Those of the code are        *)
(* measured; with them, this graph and the graph of the code are equal.    *)
(*                                                                         *)
(* Not modelled:                                                           *)
(* - what handlers do besides running, waiting for the peer and returning; *)
(* - updates and results: they carry no decision (tests cover that none    *)
(*   is sent after the response);                                          *)
(* - bytes: a bad line or bad parameters never reach the machine as a      *)
(*   prompt or a cancel (tests cover each kind);                           *)
(* - a request id that is used twice at once (tests cover the refusal);    *)
(* - a call that its caller drops, and the order of responses with         *)
(*   notifications: the domain barrier has those;                          *)
(* - the bound on queued notifications, for the same reason.               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

----------------------------------------------------------------------------
(* Constants: what the client sends. Messages are numbers from 1, one       *)
(* message in exactly one of the first seven sets. The client sends them in *)
(* any order, but those that differ in nothing in the order of their        *)
(* numbers.                                                                 *)

CONSTANTS
    Prompts,             \* session/prompt
    CancelNotifications, \* session/cancel without an id
    CancelRequests,      \* session/cancel with an id
    RequestCancels,      \* $/cancel_request: {m, t} where t < m is the request that it names
    Requests,            \* other requests
    Notifications,       \* other notifications
    InputEnds,           \* the client closes its end: nothing arrives after it
    SessionB,            \* the messages of session 2; all others are of session 1
    Deaf,                \* handlers that ignore their token: they may never return
    Fails,               \* handlers that return an error
    Waits,               \* {n} or {n, m}: the handler of notification n calls the peer once, which
                         \* answers at any time, or only once its request m has been answered
    OneAtATime,          \* the client sends a prompt only when the ones before are answered
    InFlightMax,         \* how many requests may be in flight
    Overlap              \* what becomes of a prompt that arrives while an older one of its session is in flight
                         \* that nothing has ended: "replace" (it ends the older one), "queue" (it starts after
                         \* those before it), "refuse" (it is refused, and nothing changes)

(* Constants: the facts, each one a choice that some design made.           *)

CONSTANTS
    DecideAt,            \* "arrival": at the door. "registration": in the handler's own task
    KeepNewerBy,         \* how a prompt that registers late spares the newer one: "never" (it does not),
                         \* "prev" (compares with the registered one), "newest" (with the newest ever registered)
    NewestDropsWhen,     \* when the newest one is forgotten: "none-older" in flight, or at "any-return"
    MarkerKeepsLatest,   \* an older cancel that comes to its end later does not lower the marker
    CancelComparesArrival, \* a cancel spares a prompt that arrived after it
    CleanUpOwnEntryOnly, \* a prompt that returns removes only its own entry
    CancelForms,         \* in which forms a cancel counts: "notification", "request"
    PeerWaitReleases     \* requests start while the notification handler that runs waits for the peer

----------------------------------------------------------------------------
(* Variables.                                                               *)

VARIABLES
    at,         \* [message -> its place in the order of arrival, 0 before]            code: Arrival
    task,       \* [message -> how far its handler has come]                           code: Stage
    endedBy,    \* [message -> the message that ended it, 0 if none]                   code: Cause
    answer,     \* [message -> what its response says, "none" before]                  code: Answer
    called,     \* the notifications whose handlers have called the peer               code: Calls
    registered, \* [session -> the prompt registered last, 0 if none]                  code: -
    newest,     \* [session -> the newest prompt that ever registered, 0 if none]      code: -
    marker      \* [session -> the place of the latest cancel, 0 if none]              code: -

vars == <<at, task, endedBy, answer, called, registered, newest, marker>>

Max(S) == CHOOSE m \in S : \A k \in S : k <= m
Min(S) == CHOOSE m \in S : \A k \in S : m <= k

Cancellers == {Max(c) : c \in RequestCancels}
Cancels    == CancelNotifications \cup CancelRequests
AnsweredOnes == Prompts \cup CancelRequests \cup Requests          \* each of these gets a response
QueuedOnes == CancelNotifications \cup Notifications               \* each of these has a handler on the queue
Messages   == AnsweredOnes \cup QueuedOnes \cup Cancellers \cup InputEnds
Sessions   == {1, 2}

Session(m) == IF m \in SessionB THEN 2 ELSE 1
SameSession(m, k) == Session(m) = Session(k)
Target(m)  == CHOOSE t \in UNION RequestCancels : {m, t} \in RequestCancels /\ t < m

Tasks   == {"absent", "held", "starting", "running", "calling", "done"}
Answers == {"none", "result", "error", "cancelled", "request-cancelled", "refused"}

TypeOK ==
    /\ at \in [Messages -> 0..Cardinality(Messages)]
    /\ task \in [Messages -> Tasks]
    /\ endedBy \in [Messages -> Messages \cup {0}]
    /\ answer \in [Messages -> Answers]
    /\ called \subseteq QueuedOnes
    /\ registered \in [Sessions -> Prompts \cup {0}]
    /\ newest \in [Sessions -> Prompts \cup {0}]
    /\ marker \in [Sessions -> 0..Cardinality(Messages)]

----------------------------------------------------------------------------
(* Helpers.                                                                 *)

Arrived(m)  == at[m] > 0
Done(m)     == task[m] = "done"
Refused(m)  == answer[m] = "refused"
Runs(m)     == task[m] \in {"running", "calling"}
InFlight    == {m \in AnsweredOnes : Arrived(m) /\ answer[m] = "none"}
AtTheDoor   == DecideAt = "arrival"

(* What an ended request is answered.                                       *)
Said(m) == IF m \in Prompts THEN "cancelled" ELSE "request-cancelled"

(* Messages that differ in nothing.                                         *)
Same(k, m) ==
    /\ \A S \in {Prompts, CancelNotifications, CancelRequests, Requests, Notifications, InputEnds,
                 SessionB, Deaf, Fails} : k \in S <=> m \in S
    /\ \A S \in RequestCancels \cup Waits : k \notin S /\ m \notin S

MayArrive(m) ==
    /\ ~Arrived(m)
    /\ \A k \in Messages : k < m /\ Same(k, m) => Arrived(k)
    /\ \A k \in InputEnds : ~Arrived(k)
    /\ OneAtATime /\ m \in Prompts => \A p \in Prompts : Arrived(p) => answer[p] # "none"

Place == Cardinality({m \in Messages : Arrived(m)}) + 1

(* The requests of S that are in flight and not ended yet.                  *)
Live(S) == {m \in S \cap InFlight : endedBy[m] = 0}

(* The machine after all of E were ended by m. One that is held is answered *)
(* now, one that starts when its task runs; the token of one that runs      *)
(* fires.                                                                   *)
EndedBy(E, m) == [k \in Messages |-> IF k \in E THEN m ELSE endedBy[k]]
EndedTask(t, E) == [k \in Messages |-> IF k \in E /\ t[k] = "held" THEN "done" ELSE t[k]]
EndedAnswer(E) == [k \in Messages |-> IF k \in E /\ task[k] = "held" THEN Said(k) ELSE answer[k]]

(* The tasks after everything that may start was started: the first         *)
(* notification that is not handled; each request that no earlier           *)
(* notification holds back; of prompts only one where no handler of its     *)
(* session runs, and in a queue the first one that nothing has ended.       *)
(* (The old design lets turns run side by side.)                            *)
SettledBy(t, a, e) ==
    LET waiting == {n \in QueuedOnes : a[n] > 0 /\ t[n] # "done"}
        first(n) == n \in waiting /\ \A k \in waiting : a[n] <= a[k]
        t1 == [m \in Messages |-> IF t[m] = "held" /\ first(m) THEN "starting" ELSE t[m]]
        opened(m) == \/ \A n \in waiting : a[m] < a[n]
                     \/ PeerWaitReleases /\ \E n \in waiting : t1[n] = "calling"
        first_live(m) == \A p \in Prompts : SameSession(p, m) /\ 0 < a[p] /\ a[p] < a[m] => t1[p] = "done" \/ e[p] # 0
        free(m) == m \in Prompts /\ AtTheDoor =>
                       /\ \A p \in Prompts : SameSession(p, m) => t1[p] # "running"
                       /\ Overlap = "queue" => first_live(m)
    IN  [m \in Messages |->
            IF t1[m] = "held" /\ m \in AnsweredOnes /\ opened(m) /\ free(m) THEN "starting" ELSE t1[m]]
Settled(t, a) == SettledBy(t, a, endedBy)

UnchangedRegistry == UNCHANGED <<registered, newest, marker>>

----------------------------------------------------------------------------
(* Arrivals. In each, the message takes its place, ends what it ends in     *)
(* this design, and what may start is started.                              *)

Arrive(m, E, stage, said) ==
    LET a == [at EXCEPT ![m] = Place]
        t == [EndedTask(task, E) EXCEPT ![m] = stage]
    IN  /\ at' = a
        /\ task' = SettledBy(t, a, EndedBy(E, m))
        /\ endedBy' = EndedBy(E, m)
        /\ answer' = [EndedAnswer(E) EXCEPT ![m] = said]
        /\ UnchangedRegistry

(* A request at the bound is refused; what else a cancel does, it does.     *)
Full == Cardinality(InFlight) >= InFlightMax
ArriveRequest(m, E) == IF Full THEN Arrive(m, E, "done", "refused") ELSE Arrive(m, E, "held", "none")

OfSession(m) == {p \in Prompts : SameSession(p, m)}

Busy(m) == Overlap = "refuse" /\ Live(OfSession(m)) # {}

PromptArrived(m) ==
    /\ m \in Prompts /\ MayArrive(m)
    /\ IF Busy(m)
       THEN Arrive(m, {}, "done", "refused")
       ELSE ArriveRequest(m, IF AtTheDoor /\ Overlap = "replace" /\ ~Full THEN Live(OfSession(m)) ELSE {})
    /\ UNCHANGED called

CancelArrived(m) ==
    /\ m \in Cancels /\ MayArrive(m)
    /\ LET form == IF m \in CancelRequests THEN "request" ELSE "notification"
           E == IF AtTheDoor /\ form \in CancelForms THEN Live(OfSession(m)) ELSE {}
       IN  IF m \in CancelRequests THEN ArriveRequest(m, E) ELSE Arrive(m, E, "held", "none")
    /\ UNCHANGED called

RequestArrived(m) ==
    /\ m \in Requests /\ MayArrive(m)
    /\ ArriveRequest(m, {})
    /\ UNCHANGED called

NotificationArrived(m) ==
    /\ m \in Notifications /\ MayArrive(m)
    /\ Arrive(m, {}, "held", "none")
    /\ UNCHANGED called

RequestCancelArrived(m) ==
    /\ m \in Cancellers /\ MayArrive(m)
    /\ Arrive(m, Live({Target(m)}), "done", "none")
    /\ UNCHANGED called

(* The prompts end, other requests are finished; nobody answers our calls.  *)
InputEnded(m) ==
    /\ m \in InputEnds /\ MayArrive(m)
    /\ LET E == Live(Prompts)
           t == [k \in Messages |-> IF task[k] = "calling" THEN "running" ELSE EndedTask(task, E)[k]]
           a == [at EXCEPT ![m] = Place]
       IN  /\ at' = a
           /\ task' = SettledBy([t EXCEPT ![m] = "done"], a, EndedBy(E, m))
           /\ endedBy' = EndedBy(E, m)
           /\ answer' = EndedAnswer(E)
    /\ UnchangedRegistry /\ UNCHANGED called

----------------------------------------------------------------------------
(* Tasks.                                                                   *)

(* What the old design remembers is dropped once it cannot matter any more. *)
Older(m, a) == \E k \in AnsweredOnes : at[k] > 0 /\ a[k] = "none" /\ at[k] < m
Pruned(s, n, a, returned) ==
    IF \/ n = 0
       \/ ~Older(at[n], a) /\ (a[n] # "none")
       \/ NewestDropsWhen = "any-return" /\ returned
    THEN 0 ELSE n

(* The old design: a prompt registers when its task runs. It gives way to a *)
(* cancel that arrived after it, and to a newer prompt if it knows of one;  *)
(* else it replaces the registered one.                                     *)
Register(m) ==
    LET s == Session(m)
        prev == registered[s]
        cancel == IF marker[s] > at[m] THEN CHOOSE k \in Messages : at[k] = marker[s] ELSE 0
        newer == CASE KeepNewerBy = "never"  -> 0
                   [] KeepNewerBy = "prev"   -> IF prev # 0 /\ at[prev] > at[m] THEN prev ELSE 0
                   [] KeepNewerBy = "newest" -> IF newest[s] # 0 /\ at[newest[s]] > at[m] THEN newest[s] ELSE 0
        by == IF endedBy[m] # 0 THEN endedBy[m] ELSE IF cancel # 0 THEN cancel ELSE newer
        last == IF newest[s] # 0 /\ at[newest[s]] > at[m] THEN newest[s] ELSE m
    IN  IF by # 0
        THEN /\ task' = [task EXCEPT ![m] = "done"]
             /\ answer' = [answer EXCEPT ![m] = "cancelled"]
             /\ endedBy' = [endedBy EXCEPT ![m] = by]
             /\ newest' = [newest EXCEPT ![s] = Pruned(s, @, answer', FALSE)]
             /\ UNCHANGED <<registered, marker>>
        ELSE /\ task' = [task EXCEPT ![m] = "running"]
             /\ endedBy' = EndedBy(Live({prev}), m)
             /\ registered' = [registered EXCEPT ![s] = m]
             /\ newest' = [newest EXCEPT ![s] = last]
             /\ UNCHANGED <<answer, marker>>

(* At the door all is decided before: an ended request is answered and its  *)
(* handler never starts.                                                    *)
Started(m) ==
    /\ task[m] = "starting"
    /\ IF m \in Prompts /\ ~AtTheDoor
       THEN Register(m)
       ELSE /\ LET ended == m \in AnsweredOnes /\ endedBy[m] # 0
               IN  /\ task' = Settled([task EXCEPT ![m] = IF ended THEN "done" ELSE "running"], at)
                   /\ answer' = IF ended THEN [answer EXCEPT ![m] = Said(m)] ELSE answer
            /\ UNCHANGED endedBy
            /\ UnchangedRegistry
    /\ UNCHANGED <<at, called>>

(* The old design: a cancel counts when its handler has returned.           *)
CancelTakesEffect(m) ==
    LET s == Session(m)
        form == IF m \in CancelRequests THEN "request" ELSE "notification"
        q == registered[s]
        E == IF CancelComparesArrival THEN {p \in Live({q}) : at[p] < at[m]} ELSE Live({q})
    IN  IF form \in CancelForms
        THEN /\ endedBy' = EndedBy(E, m)
             /\ marker' = [marker EXCEPT ![s] = IF MarkerKeepsLatest THEN Max({@, at[m]}) ELSE at[m]]
        ELSE UNCHANGED <<endedBy, marker>>

Unregister(m) ==
    LET s == Session(m) IN
    registered' = [registered EXCEPT ![s] = IF CleanUpOwnEntryOnly /\ @ # m THEN @ ELSE 0]

(* What a turn that was ended returned does not count: it was cancelled.    *)
Finish(m, outcome) ==
    /\ task' = Settled([task EXCEPT ![m] = "done"], at)
    /\ answer' = IF m \in AnsweredOnes
                 THEN [answer EXCEPT ![m] = IF endedBy[m] # 0 THEN Said(m) ELSE outcome]
                 ELSE answer
    /\ IF AtTheDoor
       THEN UNCHANGED endedBy /\ UnchangedRegistry
       ELSE /\ IF m \in Cancels THEN CancelTakesEffect(m) ELSE UNCHANGED <<endedBy, marker>>
            /\ IF m \in Prompts THEN Unregister(m) ELSE UNCHANGED registered
            /\ newest' = [s \in Sessions |-> Pruned(s, newest[s], answer', TRUE)]
    /\ UNCHANGED <<at, called>>

Returned(m) ==
    /\ task[m] = "running"
    /\ Finish(m, IF m \in Fails THEN "error" ELSE "result")

(* The grace period of an ended request is over: its handler is dropped.    *)
GraceOver(m) ==
    /\ task[m] = "running" /\ m \in AnsweredOnes /\ endedBy[m] # 0
    /\ Finish(m, "error")

(* A notification's handler calls the peer and waits.                       *)
Called(m) ==
    /\ task[m] = "running" /\ m \in (UNION Waits) \cap QueuedOnes /\ m \notin called
    /\ called' = called \cup {m}
    /\ task' = IF \E k \in InputEnds : Arrived(k) THEN task
               ELSE Settled([task EXCEPT ![m] = "calling"], at)
    /\ UNCHANGED <<at, endedBy, answer>> /\ UnchangedRegistry

ResponseArrived(m) ==
    /\ task[m] = "calling"
    /\ \A k \in InputEnds : ~Arrived(k)
    /\ \A w \in Waits : m \in w => \A r \in w \ {m} : answer[r] # "none"
    /\ task' = Settled([task EXCEPT ![m] = "running"], at)
    /\ UNCHANGED <<at, endedBy, answer, called>> /\ UnchangedRegistry

----------------------------------------------------------------------------
(* The whole.                                                               *)

Init ==
    /\ at = [m \in Messages |-> 0]
    /\ task = [m \in Messages |-> "absent"]
    /\ endedBy = [m \in Messages |-> 0]
    /\ answer = [m \in Messages |-> "none"]
    /\ called = {}
    /\ registered = [s \in Sessions |-> 0]
    /\ newest = [s \in Sessions |-> 0]
    /\ marker = [s \in Sessions |-> 0]

Next == \E m \in Messages :
    \/ PromptArrived(m)
    \/ CancelArrived(m)
    \/ RequestArrived(m)
    \/ NotificationArrived(m)
    \/ RequestCancelArrived(m)
    \/ InputEnded(m)
    \/ Started(m)
    \/ Returned(m)
    \/ GraceOver(m)
    \/ Called(m)
    \/ ResponseArrived(m)

Arrives(m) ==
    \/ PromptArrived(m) \/ CancelArrived(m) \/ RequestArrived(m) \/ NotificationArrived(m)
    \/ RequestCancelArrived(m) \/ InputEnded(m)

(* The client sends all, tasks run, handlers return unless they are deaf,   *)
(* grace periods end, the peer answers. Nobody must call the peer.          *)
Fairness == \A m \in Messages :
    /\ WF_vars(Arrives(m))
    /\ WF_vars(Started(m))
    /\ m \notin Deaf => WF_vars(Returned(m))
    /\ WF_vars(GraceOver(m))
    /\ WF_vars(ResponseArrived(m))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
(* The promises. A prompt or a cancel counts from where the design decides  *)
(* on it; the old design may still catch an older prompt that has not       *)
(* started.                                                                 *)

Decided(m) ==
    /\ Arrived(m) /\ (m \in Prompts => ~Refused(m))
    /\ AtTheDoor \/ Done(m) \/ (m \in Prompts /\ Runs(m))
Ends(m) == Done(m) \/ endedBy[m] # 0 \/ (~AtTheDoor /\ task[m] \in {"held", "starting"})
Before(m, k) == Arrived(m) /\ at[m] < at[k]

NewerPromptSurvives == \A p \in Prompts : endedBy[p] \in Prompts => at[endedBy[p]] > at[p]
OlderPromptEnds == \A p, q \in Prompts : Overlap = "replace" /\ SameSession(p, q) /\ Before(p, q) /\ Decided(q) => Ends(p)
OlderPromptFinishes == \A p \in Prompts : Overlap # "replace" => endedBy[p] \notin Prompts /\ \A q \in Prompts : SameSession(p, q) /\ Before(p, q) /\ Runs(q) => Ends(p)
CancelReachesEarlierPrompts == \A p \in Prompts, c \in Cancels : SameSession(p, c) /\ Before(p, c) /\ Decided(c) => Ends(p)
CancelSparesLaterPrompts == \A p \in Prompts : endedBy[p] \in Cancels => at[endedBy[p]] > at[p]
RequestCancelHitsItsRequest == \A r \in Cancellers : (Before(Target(r), r) => Ends(Target(r))) /\ \A m \in Messages : endedBy[m] = r => m = Target(r)
OneTurnAtATime == \A p, q \in Prompts : SameSession(p, q) /\ Runs(p) /\ Runs(q) => p = q
AnsweredOnce == \A m \in AnsweredOnes : Done(m) <=> answer[m] # "none"
CancelledIsSaid == \A m \in AnsweredOnes : Done(m) /\ ~Refused(m) => (endedBy[m] # 0 <=> answer[m] = Said(m))
NothingLingers == Cardinality(InFlight) <= InFlightMax /\ (InFlight = {} => \A s \in Sessions : registered[s] = 0 /\ newest[s] = 0)

(* A deaf handler that nothing ends may run for ever; every other prompt is answered. *)
EveryPromptIsAnswered == \A p \in Prompts : (Arrived(p) /\ (p \in Deaf => endedBy[p] # 0)) ~> answer[p] # "none"
=============================================================================
