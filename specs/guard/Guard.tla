------------------------------- MODULE Guard -------------------------------
(***************************************************************************)
(* `lastword guard`: the turns of a connection whose handlers do nothing   *)
(* but put their prompts to an agent that may not keep any promise.        *)
(*                                                                         *)
(* The client's side is Turns.tla, as it stands. What is added here is the *)
(* agent: which prompts are with it, which it has answered, and which the  *)
(* guard gave up. The agent may answer late, never, out of order, before   *)
(* or after its cancel; it sees a cancel from the moment on at which the   *)
(* token of the prompt's handler fires until it has answered.              *)
(*                                                                         *)
(* Not modelled:                                                           *)
(* - that a cancel is said again until the agent has answered: while one   *)
(*   prompt of a session is with the agent, a second one changes nothing;  *)
(* - what passes through (tests compare it byte by byte), and its order,   *)
(*   which is that of the domain barrier on the agent's side;              *)
(* - an agent that dies: then every request is answered with an error, and *)
(*   the guard ends (tests).                                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

----------------------------------------------------------------------------
(* Constants: what the client sends and what the agent does.                *)

CONSTANTS
    Prompts, CancelNotifications, CancelRequests, RequestCancels, Requests, Notifications, InputEnds,
    SessionB, Deaf, Fails, Waits, OneAtATime, InFlightMax, Overlap   \* as in Turns.tla

CONSTANTS
    Silent               \* prompts that the agent never answers

(* Constants: the facts.                                                    *)

CONSTANTS
    DecideAt, KeepNewerBy, NewestDropsWhen, MarkerKeepsLatest, CancelComparesArrival, CleanUpOwnEntryOnly,
    CancelForms, PeerWaitReleases,                                   \* as in Turns.tla
    GivesUp              \* a prompt that was ended and that the agent does not answer is given up after a time

VARIABLES
    at, task, endedBy, answer, called, registered, newest, marker,   \* as in Turns.tla
    agent   \* [message -> "none"; of a prompt: "waiting" with the agent, "given" once it has answered, then     code: the calls of
            \* "over", or "dropped" once the guard gave it up]                                                    the agent's side

T == INSTANCE Turns

turnVars == <<at, task, endedBy, answer, called, registered, newest, marker>>
vars == <<at, task, endedBy, answer, called, registered, newest, marker, agent>>

Messages == T!Messages
TypeOK == T!TypeOK /\ agent \in [Messages -> {"none", "waiting", "given", "over", "dropped"}]

----------------------------------------------------------------------------
(* What the client does, and the guard's tasks.                             *)

PromptArrived(m) == T!PromptArrived(m) /\ UNCHANGED agent
CancelArrived(m) == T!CancelArrived(m) /\ UNCHANGED agent
RequestCancelArrived(m) == T!RequestCancelArrived(m) /\ UNCHANGED agent
InputEnded(m) == T!InputEnded(m) /\ UNCHANGED agent
Started(m) == T!Started(m) /\ UNCHANGED agent

(* The handler of a prompt returns what the agent answered.                 *)
Returned(m) == (m \in Prompts => agent[m] = "over") /\ T!Returned(m) /\ UNCHANGED agent

(* Its future is dropped first, and with it the call.                       *)
GraceOver(m) == (m \in Prompts => agent[m] = "dropped") /\ T!GraceOver(m) /\ UNCHANGED agent

----------------------------------------------------------------------------
(* The agent.                                                               *)

Called(m) ==
    /\ m \in Prompts /\ task[m] = "running" /\ agent[m] = "none"
    /\ agent' = [agent EXCEPT ![m] = "waiting"]
    /\ UNCHANGED turnVars

ResponseArrived(m) ==
    /\ agent[m] = "waiting" /\ m \notin Silent
    /\ agent' = [agent EXCEPT ![m] = "given"]
    /\ UNCHANGED turnVars

Resumed(m) ==
    /\ agent[m] = "given"
    /\ agent' = [agent EXCEPT ![m] = "over"]
    /\ UNCHANGED turnVars

CallDropped(m) ==
    /\ GivesUp
    /\ agent[m] \in {"waiting", "given"} /\ endedBy[m] # 0
    /\ agent' = [agent EXCEPT ![m] = "dropped"]
    /\ UNCHANGED turnVars

----------------------------------------------------------------------------
(* The whole.                                                               *)

Init == T!Init /\ agent = [m \in Messages |-> "none"]

Next == \E m \in Messages :
    \/ PromptArrived(m)
    \/ CancelArrived(m)
    \/ RequestCancelArrived(m)
    \/ InputEnded(m)
    \/ Started(m)
    \/ Returned(m)
    \/ GraceOver(m)
    \/ Called(m)
    \/ ResponseArrived(m)
    \/ Resumed(m)
    \/ CallDropped(m)

Arrives(m) == PromptArrived(m) \/ CancelArrived(m) \/ RequestCancelArrived(m) \/ InputEnded(m)

(* The client sends all, the guard's tasks run and put their prompts to the *)
(* agent, which answers those for which it is not silent; the time that it  *)
(* has for an ended one is over in the end.                                 *)
Fairness == \A m \in Messages :
    /\ WF_vars(Arrives(m))
    /\ WF_vars(Started(m))
    /\ WF_vars(Returned(m))
    /\ WF_vars(GraceOver(m))
    /\ WF_vars(Called(m))
    /\ WF_vars(ResponseArrived(m))
    /\ WF_vars(Resumed(m))
    /\ WF_vars(CallDropped(m))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
(* The promises; those of Turns.tla hold as well.                           *)

WithAgent(p) == agent[p] = "waiting"

AgentSeesOneTurn == \A p, q \in Prompts : T!SameSession(p, q) /\ WithAgent(p) /\ WithAgent(q) => p = q
SilentAgentIsGivenUp == \A p \in Prompts : (agent[p] = "waiting" /\ endedBy[p] # 0) ~> agent[p] \in {"over", "dropped"}

(* What the client was promised, under the names of Turns.tla.              *)
TurnsKept ==
    /\ T!NewerPromptSurvives
    /\ T!OlderPromptEnds
    /\ T!OlderPromptFinishes
    /\ T!CancelReachesEarlierPrompts
    /\ T!CancelSparesLaterPrompts
    /\ T!RequestCancelHitsItsRequest
    /\ T!OneTurnAtATime
    /\ T!AnsweredOnce
    /\ T!CancelledIsSaid
ClientSeesTurnsKept == TurnsKept
=============================================================================
