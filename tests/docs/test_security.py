"""What SECURITY.md and docs/tls.md promise, sentence by sentence, and the tests that try it.

A promise without a test, and a test that is not there, fail here. Sentences that promise nothing
(advice, headings of code, what others' programs do) stand in ADVICE. Rows of the table of rules are
compared, and have their tests, in tests/membership/rules_test.cc.
"""

import re
import unittest

from pages import ROOT

PAGES = ("SECURITY.md", "docs/tls.md")
RULES = re.compile(r"^\| .* \| .* \| .* \|$")

# The beginning of a sentence or row: tests, as the file's name below tests/ and the test's.
PROMISES = {
    # SECURITY.md, whom Tutti trusts
    "`tuttid` runs as root or as one user":
        "agent/worker_test.cc BelongToTheUserWhoStartedTheJobAsRoot",
    "A job's workers run as":
        "agent/worker_test.cc BelongToTheUserWhoStartedTheJobAsRoot",
    "| root, the agent's user |":
        "agent/rules_test.cc KeyAndWorkersSocketsAreTheAgentsAlone",
    "| members of `admin_group` |":
        "agent/rules_test.cc MembersOfTheAdminGroupMayAdministerAsRoot",
    "| a user of the node |":
        "agent/rules_test.cc UsersSeeTheirOwnJobsAndMayNotAdministerAsRoot",
    "| a trainer, a worker |":
        "agent/http_test.cc TextsOfAWorkerForgeNoLinesAndTurnNoTerminal, "
        "agent/rules_test.cc AWorkerCannotSayThatItIsAnothersAsRoot",
    "| another agent of the mesh |":
        "control/admin_test.cc AnAgentMayLookAndPassOnButNotDrainOrStop, "
        "control/tls_nodes_test.cc NobodyElsesSecretSignsPassesOfAHost",
    "| writers to `etcd`":
        "control/elector_test.cc AKeyWithoutAnAddressIsNamed, "
        "membership/grace_test.cc InvalidStatesAreRefused",
    "| the network |":
        "control/admin_test.cc WithoutTokensNobodyOnTheNetworkMayAnything, "
        "control/admin_test.cc WhoTrustsTheNetworkTakesAllForAgents",
    "Users are identified by uid":
        "process/owners_test.cc AnotherUserMayNotJoinThroughAnotherHostAsRoot",
    "A job belongs to the user, and":
        "membership/join_test.cc AJobBelongsToTheUserAndSubjectThatBeganIt",
    "Two users may have jobs of the same name":
        "process/owners_test.cc AnotherUserMayNotJoinThroughAnotherHostAsRoot",
    "Without `tls = require` nothing is encrypted":
        "transport/tls_test.cc HostsWithoutTlsAndHostsWithItRefuseEachOther",
    "`etcd_tls_dir` encrypts":
        "control/key_store_test.cc StrangersAreRefusedWhereEtcdIsGuarded",
    "With `tls = require` the control plane is encrypted, and":
        "control/tls_nodes_test.cc EachSecretAloneOpensWhatItIsForAndNothingElse",
    # Tokens
    "A lone node needs no token":
        "agent/rules_test.cc UsersSeeTheirOwnJobsAndMayNotAdministerAsRoot",
    "Agents of several hosts need one":
        "control/admin_test.cc WithoutATokenForAgentsACoordinatorElsewhereIsRefused",
    "An agent that is to listen on all":
        "agent/service_test.cc DoesNotListenEverywhereWithoutCredentials, "
        "agent/http_test.cc IsNotOpenToEveryNetworkWithoutTokens",
    "`token_file` holds one token a line":
        "base/credentials_test.cc LinesAreReadWithTheirRoles",
    "Once any token is for trainers":
        "agent/rules_test.cc TokensDecideWhoJoinsWhichJobAsRoot, "
        "base/credentials_test.cc WithoutTokensForTrainersAllAreAdmitted",
    "Without TLS, who has a token for agents":
        "base/credentials_test.cc AnAgentSignsWithTheFirstTokenForAgentsElseWithItsOwnKey",
    "The setting `token` is one for both":
        "agent/agent_test.cc OnlyTheRightTokenOpens",
    "The file must belong to root":
        "base/token_test.cc OneOfAnotherUserIsRefused, "
        "base/token_test.cc OneThatOthersCanReadOrItsGroupCanWriteIsRefused",
    "To change a token, add":
        "base/credentials_test.cc AnAgentSignsWithTheFirstTokenForAgentsElseWithItsOwnKey",
    "Workers go on meanwhile":
        "agent/worker_test.cc NextAgentAdoptsTheLiveAndRemovesTheDead",
    # Rules
    "One row for each call":
        "membership/rules_test.cc EveryRowStandsInSecurityMd",
    "A pass is what an agent signs":
        "membership/rules_test.cc APassHoldsForWhatItSaysAlone",
    "The job's user can know it":
        "control/tls_nodes_test.cc APassIsOfOneJobAndHost, "
        "membership/join_test.cc OnlyAPassThatAnAgentSignedForThisJobAndHostAdmits",
    "With TLS the agents' token signs nothing":
        "control/tls_nodes_test.cc NobodyElsesSecretSignsPassesOfAHost, "
        "control/tls_nodes_test.cc NobodyElsesSecretResumesOrTakesOverAnEpoch, "
        "control/tls_nodes_test.cc AnEpochIsNotTakenOverFromAHostWhoseAgentIsGone, "
        "control/tls_nodes_test.cc WorkerIsTakenOnceAnAgentOfItsHostIsRegistered, "
        "membership/rules_test.cc ACertifiedHostsAgentSignsWithItsOwnKeysAndBelievesNoOther, "
        "agent/rules_test.cc KeyAndWorkersSocketsAreTheAgentsAlone",
    "Who coordinates says who is in":
        "control/tls_nodes_test.cc WhatTheCoordinatorLearnsSignsNoPasses",
    "Changes of administrators, and":
        "agent/rules_test.cc UsersSeeTheirOwnJobsAndMayNotAdministerAsRoot",
    "`audit:":
        "agent/rules_test.cc UsersSeeTheirOwnJobsAndMayNotAdministerAsRoot",
    # What a worker has of the agent
    "The job's user controls its worker":
        "agent/worker_test.cc BelongToTheUserWhoStartedTheJobAsRoot",
    "A worker of another user gets":
        "agent/worker_test.cc OtherUsersGetListedVariablesOnly, "
        "agent/worker_test.cc DoNotGetTheToken, "
        "agent/worker_test.cc AreNotProtectedFromLackOfMemoryAsTheAgentIs",
    "It has no capabilities":
        "agent/privileges_test.cc OtherUsersWorkersHaveNoneAsRoot, "
        "agent/privileges_test.cc RootsWorkersKeepWhatTheyUseAsRoot",
    "What a worker writes comes to":
        "agent/log_test.cc WhatAWorkerWritesIsCleanedAndSaysWhoseItIs, "
        "agent/log_test.cc AWorkerThatFloodsTheLogIsNotHeldUpAndWritesNoMoreThanItsShare",
    "Except for the owner, what":
        "agent/rules_test.cc AWorkerCannotSayThatItIsAnothersAsRoot",
    "Text that comes from workers":
        "base/foreign_text_test.cc WhatTerminalsObeyBecomesAQuestionMark, "
        "base/foreign_text_test.cc LongTextIsCut, "
        "session/foreign_text_test.cc EachTextOfAMessageIsCleanedAndNothingElse, "
        "agent/http_test.cc TextsOfAWorkerForgeNoLinesAndTurnNoTerminal",
    "Names of jobs and hosts that hold":
        "agent/rules_test.cc NamesThatNoTerminalMayShowAreRefusedInTrueWords",
    # docs/tls.md
    "With `tls = require` the control plane between":
        "control/tls_nodes_test.cc SideWithoutTlsLearnsTheSetting",
    "The Unix socket of a host needs no TLS":
        "process/tls_test.cc WorkersOfOtherUsersNeedNoKeyAsRoot",
    "Set it on all hosts alike":
        "transport/tls_test.cc HostsWithoutTlsAndHostsWithItRefuseEachOther",
    "TLS does not replace tokens":
        "control/tls_nodes_test.cc EachSecretAloneOpensWhatItIsForAndNothingElse",
    "With TLS the agents' token counts only":
        "control/tls_nodes_test.cc EachSecretAloneOpensWhatItIsForAndNothingElse, "
        "process/tls_outsiders_test.cc "
        "AHostOfAnotherAuthorityRunsNoRankUntilItHasTheRightCertificate, "
        "agent/http_test.cc WithTlsTheAgentsTokenShowsNothing",
    "`trust_network = yes` is refused":
        "control/tls_nodes_test.cc SettingsThatContradictEachOtherAreRefused",
    "Workers run as users and":
        "process/tls_test.cc WorkersOfOtherUsersNeedNoKeyAsRoot, "
        "control/tls_nodes_test.cc WhatTheCoordinatorLearnsSignsNoPasses, "
        "control/tls_nodes_test.cc NobodyElsesSecretSignsPassesOfAHost",
    "A host whose agent is not":
        "process/tls_outsiders_test.cc "
        "AHostOfAnotherAuthorityRunsNoRankUntilItHasTheRightCertificate, "
        "process/tls_outsiders_test.cc AHostThatLosesItsCertificateLosesItsPartInJobs",
    "`tls_dir` (`/etc/tutti/tls`) holds":
        "control/certificates_test.cc PlainFilesDo",
    "| `ca.crt` |":
        "control/tls_test.cc AuthorityIsExchangedInSteps",
    "| `tls.crt` |":
        "control/certificates_test.cc AuthoritiesInBetweenMayBeInEitherFile",
    "| `tls.key` |":
        "control/certificates_test.cc KeyThatOthersCanReadIsRefused",
    "The certificate names the host":
        "control/certificates_test.cc HostIsBoundToItsName",
    "`host` of its agent as a DNS name":
        "control/certificates_test.cc HostIsBoundToItsName",
    "On the coordinator's host it also":
        "control/tls_test.cc ServerOfAnotherNameIsRefusedByName",
    "Extended key usages, if there are any":
        "control/certificates_test.cc UsageMustBeAllowed",
    "An agent that finds a file missing":
        "process/tls_test.cc AgentSaysAtItsStartWhatIsWrongWithItsFiles, "
        "control/certificates_test.cc TimesAreChecked, "
        "control/certificates_test.cc KeyOfAnotherCertificateIsRefused",
    "The commands of [the install page]":
        "control/certificates_test.cc CommandsOfThePageMakeFilesThatDo",
    "People and tools that call other hosts":
        "control/tls_nodes_test.cc EnvironmentOfToolsIsChecked",
    "They need a certificate only":
        "control/tls_nodes_test.cc AdministratorsAreKnownByTheirCertificates",
    "- **Administrators** have":
        "process/tls_test.cc CertificatesOfAdministratorsAloneAdminister, "
        "control/certificates_test.cc AdministratorIsNamed",
    "It may do what a token with `role=admin`":
        "process/tls_test.cc CertificatesOfAdministratorsAloneAdminister",
    "A Certificate per host, issued":
        "control/tls_nodes_test.cc AgentIsRegisteredUnderTheNameOfItsCertificateAlone",
    "Certificates that name a SPIFFE ID alone":
        "control/certificates_test.cc SpiffeIdIsTheOnlyUri",
    "Only IDs that differ from this side's":
        "control/tls_test.cc ServerWithASiblingsSpiffeIdIsTaken",
    "- spiffe://cluster/tutti/a is host":
        "control/certificates_test.cc HostIsBoundToItsName",
    "- Agents that all have the same ID":
        "control/tls_nodes_test.cc AgentsMayShareASpiffeId",
    "- spiffe://cluster/ns/tutti/sa/tutti-admin":
        "control/certificates_test.cc AdministratorIsNamed",
    "| an agent to the coordinator |":
        "control/tls_nodes_test.cc AgentIsRegisteredUnderTheNameOfItsCertificateAlone, "
        "control/tls_nodes_test.cc EachSecretAloneOpensWhatItIsForAndNothingElse, "
        "process/tls_test.cc AgentWithTheCertificateOfAnotherIsNotRegistered",
    "| the coordinator to an agent |":
        "control/tls_nodes_test.cc AgentIsKnownByItsNameAtAnyAddress",
    "| a worker to the coordinator |":
        "control/tls_nodes_test.cc WorkerNeedsWhatItsAgentPublishesAlone, "
        "control/tls_nodes_test.cc WorkerIsTakenOnceAnAgentOfItsHostIsRegistered",
    "| `tutti status --address host:port`":
        "control/tls_test.cc ServerOfAnotherNameIsRefusedByName, "
        "control/tls_nodes_test.cc AdministratorsAreKnownByTheirCertificates",
    "Workers find their agent's `tls.crt`":
        "control/certificates_test.cc WhatIsPublicIsEnoughForAClient",
    "Names are compared whole":
        "control/certificates_test.cc HostIsBoundToItsName, "
        "control/certificates_test.cc ServerIsKnownByWhatWasDialled",
    "Who has a certificate that shares":
        "control/certificates_test.cc ServerMayBeThisHost",
    "The files are read again before":
        "control/tls_test.cc NewCertificatesAreUsedWhileStreamsGoOn",
    "New ones are used as soon as":
        "process/tls_test.cc JobGoesOnWhileCertificatesAndTheirAuthorityAreRenewed",
    "Where they do not pass":
        "control/certificates_test.cc FilesThatDoNotFitAreLeftAndWarnedOfOnce",
    "It also says which certificate":
        "control/certificates_test.cc ExpiryIsWarnedOfBeforeAndAfterItOnce",
    "Turn a link, or rename a directory":
        "control/certificates_test.cc ChangedFilesAreTaken",
    "To change the authority, first":
        "control/tls_test.cc AuthorityIsExchangedInSteps",
    "The links between workers need none":
        "process/tls_test.cc WorkersOfOtherUsersNeedNoKeyAsRoot",
    "Each worker makes a key":
        "transport/tls_test.cc AreNewEachTime, "
        "transport/tls_test.cc ListenerWithAnotherCertificateIsRefusedByName",
    "The dialler proves that it knows":
        "transport/tcp_test.cc TurnsAwayAWrongProof",
    "The further connections of a TCP link":
        "transport/data_stream_test.cc AreOpenedByTheLinksDiallerAlone",
    "Only TLS 1.3 is spoken":
        "transport/tls_test.cc ChangesItsKeysInTime",
    "- `if tuttid there has tls = require":
        "control/tls_nodes_test.cc SideWithoutTlsLearnsTheSetting",
    "- `tuttid there does not speak TLS":
        "control/tls_nodes_test.cc SideWithoutTlsLearnsTheSetting",
    "- `no authority in":
        "control/tls_test.cc ServerOfAnotherAuthorityIsRefused",
    "- `its certificate is for DNS b":
        "control/tls_test.cc ServerOfAnotherNameIsRefusedByName",
    "- `tls = require on the host at":
        "transport/tls_test.cc HostsWithoutTlsAndHostsWithItRefuseEachOther",
    "- `10.0.0.2:40127: it is not":
        "transport/tls_test.cc ListenerWithAnotherCertificateIsRefusedByName",
    "- `no agent of host b is registered":
        "process/tls_outsiders_test.cc "
        "AHostOfAnotherAuthorityRunsNoRankUntilItHasTheRightCertificate",
    "- `an agent calls itself host c":
        "process/tls_test.cc AgentWithTheCertificateOfAnotherIsNotRegistered",
}
ADVICE = (
    "Report a weakness", "You get an answer", "There is no release yet",
    "Let nobody but the agents write", "Make tokens by", "WHO:", "WHAT:",
    "OUTCOME`", "Refusals are limited", "Without it (`tls = off`", "Its DNS names are the host's",
    "Mount its Secret", "That driver requests", "Revocation lists are not read",
    "Encryption costs", "Let only the hosts of the mesh", "Floods are attributed",
    "Quotas of ranks and memory", "It is valid until the agents' token", "A coordinator that lost",
    "While an agent is down", "With cores to spare",
)


def sentences(text):
    """The sentences of a page, and the rows of its tables without their headers."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.strip().splitlines() if not line.startswith("#")]
        if lines and lines[0].startswith("|"):
            yield from (line for line in lines[2:] if not is_rule(line))
            continue
        for item in re.split(r"\n(?=- )", "\n".join(lines)):
            yield from (part for part in
                        re.split(r"(?<=[.!?:])\s+(?=[A-Z`])", " ".join(item.split())) if part)


def is_rule(row):
    """Whether tests/membership/rules_test.cc compares and tries the row."""
    rules = (ROOT / "daemon/membership/rules.cc").read_text(encoding="utf-8")
    door = row.split(" | ")[0].removeprefix("| ")
    return bool(RULES.match(row)) and f'"{door}"' in rules


def missing_tests(tests):
    for test in tests.split(", "):
        file, name = test.split()
        path = ROOT / "tests" / file
        if not path.exists() or f", {name}) {{" not in path.read_text(encoding="utf-8"):
            yield test


class Security(unittest.TestCase):
    def setUp(self):
        self.sentences = [sentence for page in PAGES
                          for sentence in sentences((ROOT / page).read_text(encoding="utf-8"))]

    def test_every_promise_has_tests(self):
        known = tuple(PROMISES) + ADVICE
        self.assertEqual([s for s in self.sentences if not s.startswith(known)], [])

    def test_every_test_is_there(self):
        self.assertEqual([t for tests in PROMISES.values() for t in missing_tests(tests)], [])

    def test_no_row_is_of_a_sentence_that_is_gone(self):
        known = tuple(PROMISES) + ADVICE
        self.assertEqual([k for k in known if not any(s.startswith(k) for s in self.sentences)], [])

    def test_what_is_missing_is_found(self):
        page = "# T\n\nOne. Two:\n\n| a |\n|---|\n| row |\n\n- item\n- next"
        self.assertEqual(list(sentences(page)), ["One.", "Two:", "| row |", "- item", "- next"])
        absent = "membership/rules_test.cc NoSuchTest"
        self.assertEqual(list(missing_tests(absent)), [absent])


if __name__ == "__main__":
    unittest.main()
