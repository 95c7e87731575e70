----------------------------- MODULE Delegation -----------------------------
(***************************************************************************)
(* Tickets: a lead sends work to workers, a worker asks and replies, calls *)
(* that block run out of time, workers and the daemon die.                 *)
(*                                                                         *)
(* Written from the promises, not from the code. The facts below say which *)
(* design is meant; those of the code are measured, and with them this     *)
(* graph and the graph of the code are equal.                              *)
(*                                                                         *)
(* Not modelled:                                                           *)
(* - what is said: texts are names, and no decision looks at them;         *)
(* - spawning, and reading an inbox: the workers live from the start, and  *)
(*   a cursor moves nothing else (tests of the core have both);            *)
(* - several leads: whoever asks for what is not his is refused, and a     *)
(*   refusal changes nothing (tests of the core);                          *)
(* - the bounds but that of tickets: each is a refusal (tests of the core);*)
(* - what is done at the worker's process: to cancel its prompt or to kill *)
(*   it promises nothing; that its turn ended or that it died is a step.   *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

----------------------------------------------------------------------------
(* Constants: what leads and workers do. Tickets are numbers from 1 and are *)
(* sent in their order, each again only where a crash has lost it.          *)

CONSTANTS
    Sends,               \* the tickets
    OfWorkerTwo,         \* those for worker 2; the others are for worker 1
    Watched,             \* the call that sends it waits
    Replaces,            \* it cancels the open tickets of its worker
    Keyed,               \* it may be sent once more, with its key
    Asks, AsksMax,       \* its worker may ask so many questions
    AnswersWatch,        \* a call that answers waits
    Replies, RepliesMax, \* its worker may reply so many times
    Strays,              \* workers that may reply once without saying to which ticket
    Polls,               \* it may be polled once, by a call that waits
    Sees,                \* its lead may be shown how it ended
    TicketsMax,          \* so many tickets are kept
    Cancels,             \* it may be cancelled
    Fails,               \* its worker may answer the prompt with an error
    Stops,               \* workers that may be stopped
    Deaths,              \* workers that may die
    Crashes              \* how often the daemon may die

(* Constants: the facts, each one a choice that some design made.           *)

CONSTANTS
    ReplyLooksAt,           \* "ticket": a reply completes the ticket of its turn. "waiter": only where a call waits for
                            \* it, else it is in the inbox. "waiter-then-asked-ticket": also where the turn has asked and
                            \* was answered
    AbandonChecksReply,     \* a stop takes the reply from the inbox, where there is one, before it ends the ticket
    QuestionsHaveIds,       \* an answer names its question; else it is for the last one of the turn
    AcknowledgedOnceStored, \* callers are told once the store has it; else at once
    LateAnswerIsPrompt,     \* an answer that no call of the worker waits for is its next prompt; else it is kept, and the
                            \* turn ends without it
    UntakenAnswerReturns,   \* an answer that a call was handed and did not take is a late one; else it left with its call
    QueueOutlivesTurn,      \* a worker that dies in a turn whose ticket had ended is started again; else it is gone, and the
                            \* tickets that wait fail
    ForgetsOnlySeen         \* a ticket makes room for a newer one only where its lead was shown how it ended

----------------------------------------------------------------------------
(* Variables.                                                               *)

VARIABLES
    log,     \* what is stored, and after each entry that is not what would be: the last one is what was decided  code: stored, journal, now
    turn,    \* [worker -> the ticket whose turn it is, or 0]                                       code: Seat::turn
    stage,   \* [worker -> how far the prompt of that turn has come]                                code: Stage
    ask,     \* [ticket -> for each question, whether the worker waits for, or has, the answer]     code: asks
    watch,   \* [ticket -> how many calls watch]                                                    code: watches
    acked,   \* what callers were told: tickets, answers and replies of each, strays of each worker code: Acknowledge
    again,   \* [ticket -> it was sent once more]                                                   code: -
    polled,  \* [ticket -> it was polled]                                                           code: -
    crashes, \* how often the daemon has died                                                       code: -
    breach   \* what must never happen and that no later state would show                          code: -

vars == <<log, turn, stage, ask, watch, acked, again, polled, crashes, breach>>

Workers == IF OfWorkerTwo = {} THEN {1} ELSE {1, 2}
WorkerOf(t) == IF t \in OfWorkerTwo THEN 2 ELSE 1
Min(S) == CHOOSE m \in S : \A k \in S : m <= k
Max(S) == CHOOSE m \in S : \A k \in S : k <= m
Larger(a, b) == IF a < b THEN b ELSE a

(* A durable state: tickets, their questions, late replies, replies that    *)
(* are in the inbox although the ticket was open, all replies to it; the    *)
(* strays of each worker in the inbox, the workers' lives, and of which     *)
(* tickets the lead was shown how they ended.                               *)
Ticket(d) == d[1]
Questions(d) == d[2]
Late(d) == d[3]
Missed(d) == d[4]
Said(d) == d[5]
Inbox(d) == d[6]
Life(d) == d[7]
Shown(d) == d[8]

Words == {"none", "queued", "working", "replied", "message", "failed", "cancelled", "forgotten"}
Ended == {"replied", "message", "failed", "cancelled"}

Disk == log[1]
Now  == log[Len(log)]
Open(d, t) == Ticket(d)[t] \in {"queued", "working"}
OpenQuestions(d, t) == {k \in DOMAIN Questions(d)[t] : Questions(d)[t][k] = "open"}
InputRequired(d, t) == Ticket(d)[t] = "working" /\ OpenQuestions(d, t) # {}
Kept(d) == {t \in Sends : Ticket(d)[t] \notin {"none", "forgotten"}}
Stored(t) == t \in Kept(Disk)

TypeOK ==
    /\ Len(log) > 0
    /\ \A i \in DOMAIN log :
        /\ Ticket(log[i]) \in [Sends -> Words]
        /\ \A t \in Sends : \A k \in DOMAIN Questions(log[i])[t] : Questions(log[i])[t][k] \in {"open", "answered"}
        /\ Life(log[i]) \in [Workers -> {"alive", "stopping", "gone"}]
    /\ turn \in [Workers -> Sends \cup {0}]
    /\ stage \in [Workers -> {"none", "beginning", "delivering", "running", "paused"}]
    /\ \A w \in Workers : turn[w] = 0 <=> stage[w] = "none"
    /\ \A t \in Sends : \A k \in DOMAIN ask[t] : ask[t][k] \in {"waiting", "handed", "closed", "lost", "given", "void"}
    /\ \A t \in Sends : DOMAIN ask[t] = DOMAIN Questions(Now)[t]
    /\ \A t \in Sends : watch[t] \in 0..4
    /\ breach \subseteq {"changed", "wrong", "waiting", "unseen"}

----------------------------------------------------------------------------
(* Helpers.                                                                 *)

(* What callers may be told by the state of the store d.                    *)
Told(d) == <<
    [t \in Sends |-> Ticket(d)[t] # "none"],
    [t \in Sends |-> Cardinality({k \in DOMAIN Questions(d)[t] : Questions(d)[t][k] = "answered"})],
    [t \in Sends |-> Said(d)[t]],
    [w \in Workers |-> Inbox(d)[w]]>>

Both(a, b) == <<
    [t \in Sends |-> a[1][t] \/ b[1][t]],
    [t \in Sends |-> Larger(a[2][t], b[2][t])],
    [t \in Sends |-> Larger(a[3][t], b[3][t])],
    [w \in Workers |-> Larger(a[4][w], b[4][w])]>>

(* The state after everything that may go on went on. b is the log without  *)
(* the change, d what is decided now, u, s, a, h the new turns, stages,     *)
(* asks and watches. Nothing of a ticket goes on that is not stored as it   *)
(* is.                                                                      *)
Settle(b, d, u, s, a, h, wrong) ==
    LET disk       == b[1]
        stored(t)  == \A i \in 1..5 : d[i][t] = disk[i][t]
        delivers(w) == u[w] # 0 /\ s[w] = "beginning" /\ stored(u[w])
        late(t)    == {k \in DOMAIN a[t] : Questions(d)[t][k] = "answered" /\ a[t][k] = "closed"}
        prompts(w) == LateAnswerIsPrompt /\ u[w] # 0 /\ s[w] = "paused" /\ stored(u[w]) /\ late(u[w]) # {}
        hands(t, k) == stored(t) /\ Questions(d)[t][k] = "answered" /\ a[t][k] = "waiting"
        gives(t, k) == /\ stored(t) /\ k \in late(t)
                       /\ u[WorkerOf(t)] = t /\ prompts(WorkerOf(t)) /\ k = Min(late(t))
        shows(t)   == stored(t) /\ (InputRequired(d, t) \/ Ticket(d)[t] \in Ended)
        queue(w)   == {t \in Sends : WorkerOf(t) = w /\ Ticket(d)[t] = "queued"}
        begins(w)  == Life(d)[w] = "alive" /\ u[w] = 0 /\ queue(w) # {} /\ stored(Min(queue(w)))
        begun      == {Min(queue(w)) : w \in {v \in Workers : begins(v)}}
        e          == [d EXCEPT ![1] = [t \in Sends |-> IF t \in begun THEN "working" ELSE Ticket(d)[t]]]
        before     == b[Len(b)]
    IN  /\ log' = IF e = before THEN b ELSE Append(b, e)
        /\ turn' = [w \in Workers |-> IF begins(w) THEN Min(queue(w)) ELSE u[w]]
        /\ stage' = [w \in Workers |-> IF begins(w) THEN "beginning"
                                       ELSE IF delivers(w) \/ prompts(w) THEN "delivering" ELSE s[w]]
        /\ ask' = [t \in Sends |-> [k \in DOMAIN a[t] |-> IF hands(t, k) THEN "handed"
                                                         ELSE IF gives(t, k) THEN "given" ELSE a[t][k]]]
        /\ watch' = [t \in Sends |-> IF shows(t) THEN 0 ELSE h[t]]
        /\ acked' = Both(acked, Told(IF AcknowledgedOnceStored THEN disk ELSE e))
        /\ breach' = breach \cup wrong
                            \cup (IF \E t \in Sends : /\ Ticket(before)[t] \in Ended
                                                     /\ Ticket(e)[t] \notin {Ticket(before)[t], "forgotten"}
                                  THEN {"changed"} ELSE {})

(* The same, after these open tickets have ended so: whoever waits for an   *)
(* answer never gets one, and a turn of which nothing runs is over.         *)
Ends(d, T, word, u, s, a, h, wrong) ==
    LET over(w) == u[w] \in T /\ s[w] \in {"beginning", "paused"}
    IN  Settle(log,
               [d EXCEPT ![1] = [t \in Sends |-> IF t \in T THEN word ELSE Ticket(d)[t]]],
               [w \in Workers |-> IF over(w) THEN 0 ELSE u[w]],
               [w \in Workers |-> IF over(w) THEN "none" ELSE s[w]],
               [t \in Sends |-> IF t \in T
                                THEN [k \in DOMAIN a[t] |-> IF a[t][k] \in {"given", "lost"} THEN a[t][k] ELSE "void"]
                                ELSE a[t]],
               h, wrong)

OpenOf(w) == {t \in Sends : WorkerOf(t) = w /\ Open(Now, t)}
Watches(t, does) == [watch EXCEPT ![t] = IF does THEN @ + 1 ELSE @]

----------------------------------------------------------------------------
(* What leads do.                                                           *)

(* What makes room where as many tickets are kept as may.                   *)
Forgettable == {t \in Sends : /\ Ticket(Now)[t] \in Ended /\ (ForgetsOnlySeen => Shown(Now)[t])
                              /\ \A w \in Workers : turn[w] # t}

(* d without what was said to the tickets T.                                *)
Without(d, T) == [i \in DOMAIN d |->
    CASE i = 1 -> [t \in Sends |-> IF t \in T THEN "forgotten" ELSE d[1][t]]
      [] i = 2 -> [t \in Sends |-> IF t \in T THEN <<>> ELSE d[2][t]]
      [] i \in 3..5 -> [t \in Sends |-> IF t \in T THEN 0 ELSE d[i][t]]
      [] i \in 6..7 -> d[i]
      [] i = 8 -> [t \in Sends |-> IF t \in T THEN FALSE ELSE d[8][t]]]

(* A key that is known gives its ticket, whatever has become of that.       *)
Sent(t) ==
    \/ LET full == Cardinality(Kept(Now)) >= TicketsMax
           old == IF full /\ Forgettable # {} THEN {Min(Forgettable)} ELSE {}
           d == [Without(Now, old) EXCEPT ![1][t] = "queued"]
           asks == [k \in Sends |-> IF k \in old THEN <<>> ELSE ask[k]]
       IN  /\ t \in Sends /\ Ticket(Now)[t] = "none"
           /\ \A k \in Sends : k < t => Ticket(Now)[k] # "none"
           /\ Life(Now)[WorkerOf(t)] = "alive"
           /\ full => old # {}
           /\ Ends(d, IF t \in Replaces THEN OpenOf(WorkerOf(t)) ELSE {}, "cancelled",
                   turn, stage, asks, Watches(t, t \in Watched),
                   IF \E k \in old : ~Shown(Now)[k] THEN {"unseen"} ELSE {})
           /\ UNCHANGED <<again, polled, crashes>>
    \/ /\ t \in Keyed /\ t \in Kept(Now) /\ ~again[t]
       /\ again' = [again EXCEPT ![t] = TRUE]
       /\ Settle(log, Now, turn, stage, ask, Watches(t, t \in Watched), {})
       /\ UNCHANGED <<polled, crashes>>

(* A question that is not stored is shown to nobody.                        *)
Answered(t) == \E k \in OpenQuestions(Disk, t) :
    /\ Open(Now, t) /\ k \in OpenQuestions(Now, t)
    /\ LET lands == IF QuestionsHaveIds THEN k ELSE Max(OpenQuestions(Now, t))
       IN  Settle(log, [Now EXCEPT ![2][t][lands] = "answered"], turn, stage, ask, Watches(t, AnswersWatch),
                  IF lands = k THEN {} ELSE {"wrong"})
    /\ UNCHANGED <<again, polled, crashes>>

Polled(t) ==
    /\ t \in Polls /\ ~polled[t] /\ acked[1][t] /\ t \in Kept(Now)
    /\ polled' = [polled EXCEPT ![t] = TRUE]
    /\ Settle(log, Now, turn, stage, ask, Watches(t, TRUE), {})
    /\ UNCHANGED <<again, crashes>>

(* The window of a send, an answer or a poll is over, or its caller left.   *)
WindowClosed(t) ==
    /\ watch[t] > 0
    /\ watch' = [watch EXCEPT ![t] = @ - 1]
    /\ UNCHANGED <<log, turn, stage, ask, acked, again, polled, crashes, breach>>

(* A call shows how it ended, as it is stored and with all that came late.  *)
Seen(t) ==
    /\ t \in Sees /\ Ticket(Disk)[t] \in Ended /\ ~Shown(Now)[t]
    /\ \A i \in 1..5 : Now[i][t] = Disk[i][t]
    /\ Settle(log, [Now EXCEPT ![8][t] = TRUE], turn, stage, ask, watch, {})
    /\ UNCHANGED <<again, polled, crashes>>

Cancelled(t) ==
    /\ t \in Cancels /\ acked[1][t] /\ Open(Now, t)
    /\ Ends(Now, {t}, "cancelled", turn, stage, ask, watch, {})
    /\ UNCHANGED <<again, polled, crashes>>

Stopped(w) ==
    /\ w \in Stops /\ Life(Now)[w] = "alive"
    /\ LET d == [Now EXCEPT ![7][w] = "stopping"]
           found == {t \in OpenOf(w) : AbandonChecksReply /\ Missed(d)[t] > 0}
           e == [d EXCEPT ![1] = [t \in Sends |-> IF t \in found THEN "replied" ELSE Ticket(d)[t]],
                          ![4] = [t \in Sends |-> IF t \in found THEN Missed(d)[t] - 1 ELSE Missed(d)[t]]]
       IN  Ends(e, OpenOf(w) \ found, "cancelled", turn, stage, ask, watch, {})
    /\ UNCHANGED <<again, polled, crashes>>

----------------------------------------------------------------------------
(* What workers do.                                                         *)

Delivered(t) ==
    /\ turn[WorkerOf(t)] = t /\ stage[WorkerOf(t)] = "delivering"
    /\ stage' = [stage EXCEPT ![WorkerOf(t)] = "running"]
    /\ UNCHANGED <<log, turn, ask, watch, acked, again, polled, crashes, breach>>

Asked(t) ==
    /\ t \in Asks /\ turn[WorkerOf(t)] = t /\ stage[WorkerOf(t)] = "running" /\ Open(Now, t)
    /\ Len(Questions(Now)[t]) < AsksMax
    /\ Settle(log, [Now EXCEPT ![2][t] = Append(@, "open")], turn, stage, [ask EXCEPT ![t] = Append(@, "waiting")],
              watch, {})
    /\ UNCHANGED <<again, polled, crashes>>

AnswerTaken(t) == \E k \in DOMAIN ask[t] :
    /\ ask[t][k] = "handed"
    /\ ask' = [ask EXCEPT ![t][k] = "given"]
    /\ UNCHANGED <<log, turn, stage, watch, acked, again, polled, crashes, breach>>

(* What becomes of a call that leaves.                                      *)
Left(call) == CASE call = "waiting" -> "closed"
                [] call = "handed" -> IF UntakenAnswerReturns THEN "closed" ELSE "lost"
                [] OTHER -> call

AskWindowClosed(t) == \E k \in DOMAIN ask[t] :
    /\ ask[t][k] \in {"waiting", "handed"}
    /\ ask' = [ask EXCEPT ![t][k] = Left(@)]
    /\ UNCHANGED <<log, turn, stage, watch, acked, again, polled, crashes, breach>>

(* To a ticket whose task the worker was given; or to none, where it is at  *)
(* none that is open.                                                       *)
Replied(m) ==
    \/ /\ m \in Replies /\ m \in Kept(Now) /\ Ticket(Now)[m] # "queued" /\ Said(Now)[m] < RepliesMax
       /\ ~(turn[WorkerOf(m)] = m /\ stage[WorkerOf(m)] = "beginning")
       /\ LET d == [Now EXCEPT ![5][m] = @ + 1]
              asked == \E k \in DOMAIN Questions(d)[m] : Questions(d)[m][k] = "answered"
              reaches == \/ ReplyLooksAt = "ticket"
                         \/ watch[m] > 0
                         \/ ReplyLooksAt = "waiter-then-asked-ticket" /\ asked
          IN  IF ~Open(Now, m)
              THEN Settle(log, [d EXCEPT ![3][m] = @ + 1, ![8][m] = FALSE], turn, stage, ask, watch, {})
              ELSE IF reaches THEN Ends(d, {m}, "replied", turn, stage, ask, watch, {})
              ELSE Settle(log, [d EXCEPT ![4][m] = @ + 1], turn, stage, ask, watch, {})
       /\ UNCHANGED <<again, polled, crashes>>
    \/ /\ m \in Strays /\ Inbox(Now)[m] = 0
       /\ ~\E t \in Sends : turn[m] = t /\ Open(Now, t)
       /\ Settle(log, [Now EXCEPT ![6][m] = @ + 1], turn, stage, ask, watch, {})
       /\ UNCHANGED <<again, polled, crashes>>

(* The worker has answered its prompt. Where the turn still waits for an    *)
(* answer, that will be the next one.                                       *)
TurnEnded(t) ==
    LET w == WorkerOf(t)
        pauses == \E k \in DOMAIN ask[t] :
                      /\ Left(ask[t][k]) = "closed"
                      /\ LateAnswerIsPrompt \/ Questions(Now)[t][k] = "open"
        closed == [ask EXCEPT ![t] = [k \in DOMAIN @ |-> Left(@[k])]]
    IN  /\ turn[w] = t /\ stage[w] = "running"
        /\ \/ /\ ~Open(Now, t)
              /\ Settle(log, Now, [turn EXCEPT ![w] = 0], [stage EXCEPT ![w] = "none"], ask, watch, {})
           \/ /\ Open(Now, t) /\ t \in Fails
              /\ Ends(Now, {t}, "failed", turn, [stage EXCEPT ![w] = "paused"], closed, watch, {})
           \/ /\ Open(Now, t) /\ pauses
              /\ Settle(log, Now, turn, [stage EXCEPT ![w] = "paused"], closed, watch, {})
           \/ /\ Open(Now, t) /\ ~pauses
              /\ Ends(Now, {t}, "message", turn, [stage EXCEPT ![w] = "paused"], closed, watch, {})
        /\ UNCHANGED <<again, polled, crashes>>

(* In a turn whose ticket had ended, only its process is gone: a worker     *)
(* that does not let go of what was replaced must not cost what waits.      *)
WorkerDied(w) ==
    LET over == Life(Now)[w] = "alive" /\ turn[w] # 0 /\ ~Open(Now, turn[w])
        u == [turn EXCEPT ![w] = 0]
        s == [stage EXCEPT ![w] = "none"]
    IN  /\ Life(Now)[w] = "stopping" \/ (w \in Deaths /\ Life(Now)[w] = "alive")
        /\ IF over /\ QueueOutlivesTurn
           THEN Settle(log, Now, u, s, ask, watch, {})
           ELSE Ends([Now EXCEPT ![7][w] = "gone"], OpenOf(w), "failed", u, s, ask, watch,
                     IF over /\ OpenOf(w) # {} THEN {"waiting"} ELSE {})
    /\ UNCHANGED <<again, polled, crashes>>

----------------------------------------------------------------------------
(* The store and the daemon.                                                *)

(* Some of the oldest entries are stored, by one commit.                    *)
Persisted ==
    /\ \E n \in 2..Len(log) : Settle(SubSeq(log, n, Len(log)), Now, turn, stage, ask, watch, {})
    /\ UNCHANGED <<again, polled, crashes>>

(* The daemon dies and begins again with what is stored. What was given to  *)
(* a worker fails, since a part of it may be done; what was not keeps its   *)
(* place.                                                                   *)
Restarted ==
    /\ crashes < Crashes
    /\ crashes' = crashes + 1
    /\ LET life == [w \in Workers |-> IF Life(Disk)[w] = "alive" THEN "alive" ELSE "gone"]
           fails(t) == Ticket(Disk)[t] = "working" \/ (Ticket(Disk)[t] = "queued" /\ life[WorkerOf(t)] = "gone")
           d == [Disk EXCEPT ![1] = [t \in Sends |-> IF fails(t) THEN "failed" ELSE Ticket(Disk)[t]], ![7] = life]
       IN  Settle(<<Disk>>, d, [w \in Workers |-> 0], [w \in Workers |-> "none"],
                  [t \in Sends |-> [k \in DOMAIN Questions(Disk)[t] |-> IF ask[t][k] = "given" THEN "given" ELSE "void"]],
                  [t \in Sends |-> 0], {})
    /\ UNCHANGED <<again, polled>>

----------------------------------------------------------------------------
(* The whole.                                                               *)

Init ==
    /\ log = << <<[t \in Sends |-> "none"], [t \in Sends |-> <<>>], [t \in Sends |-> 0], [t \in Sends |-> 0],
                  [t \in Sends |-> 0], [w \in Workers |-> 0], [w \in Workers |-> "alive"],
                  [t \in Sends |-> FALSE]>> >>
    /\ turn = [w \in Workers |-> 0]
    /\ stage = [w \in Workers |-> "none"]
    /\ ask = [t \in Sends |-> <<>>]
    /\ watch = [t \in Sends |-> 0]
    /\ acked = <<[t \in Sends |-> FALSE], [t \in Sends |-> 0], [t \in Sends |-> 0], [w \in Workers |-> 0]>>
    /\ again = [t \in Sends |-> FALSE]
    /\ polled = [t \in Sends |-> FALSE]
    /\ crashes = 0
    /\ breach = {}

OfTicket(t) ==
    \/ Sent(t)
    \/ Answered(t)
    \/ Polled(t)
    \/ Seen(t)
    \/ WindowClosed(t)
    \/ Cancelled(t)
    \/ Delivered(t)
    \/ Asked(t)
    \/ AnswerTaken(t)
    \/ AskWindowClosed(t)
    \/ TurnEnded(t)

OfWorker(w) == Stopped(w) \/ WorkerDied(w)

Next ==
    \/ \E t \in Sends : OfTicket(t)
    \/ \E w \in Workers : OfWorker(w)
    \/ \E m \in Sends \cup Workers : Replied(m)
    \/ Persisted
    \/ Restarted

(* The store stores, prompts are given, turns end, and the lead answers     *)
(* what it is asked. Nobody must do anything else.                          *)
Fairness ==
    /\ WF_vars(Persisted)
    /\ \A t \in Sends : WF_vars(Delivered(t)) /\ WF_vars(TurnEnded(t)) /\ WF_vars(Answered(t))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
(* The promises.                                                            *)

Failure(d, t) == Ticket(d)[t] \in {"failed", "cancelled"}

ReplyReachesTicket == \A t \in Sends : Missed(Now)[t] = 0
NoFalseFailure == \A t \in Sends : Failure(Now, t) => Missed(Now)[t] = 0
ReplyExactlyOnce == \A t \in Sends :
    Said(Now)[t] = Late(Now)[t] + Missed(Now)[t] + (IF Ticket(Now)[t] = "replied" THEN 1 ELSE 0)
NoWrongTicket == "wrong" \notin breach
TerminalIsFinal == "changed" \notin breach
SameKeySameTicket == \A t \in Sends : again[t] => Ticket(Now)[t] # "none" \/ crashes > 0
QuestionReachesLead == \A t \in Sends :
    /\ watch[t] > 0 /\ Len(log) = 1 => ~InputRequired(Now, t)
    /\ Ticket(Now)[t] = "message" => \A k \in DOMAIN Questions(Now)[t] : Questions(Now)[t][k] = "answered"
AnswerExactlyOnce == \A t \in Sends : Ticket(Now)[t] = "message" => \A k \in DOMAIN ask[t] : ask[t][k] = "given"
WaitingTicketSurvives == "waiting" \notin breach
UnseenIsKept == "unseen" \notin breach

(* What made room for a newer ticket was seen before.                       *)
AcknowledgedSurvivesCrash == LET told == Told(Disk) IN
        /\ \A t \in Sends : \/ Ticket(Now)[t] = "forgotten"
                            \/ /\ acked[1][t] => told[1][t]
                               /\ acked[2][t] <= told[2][t]
                               /\ acked[3][t] <= told[3][t]
        /\ \A w \in Workers : acked[4][w] <= told[4][w]

Answer(t, k) == k \in DOMAIN Questions(Disk)[t] /\ Questions(Disk)[t][k] = "answered"
Given(t, k) == k \in DOMAIN ask[t] /\ ask[t][k] = "given"
AnswerReachesWorker == \A t \in Sends : \A k \in 1..AsksMax :
    Answer(t, k) ~> (Given(t, k) \/ Ticket(Disk)[t] \in Ended)
EveryTicketEnds == \A t \in Sends : Stored(t) ~> Ticket(Disk)[t] \in Ended
=============================================================================
