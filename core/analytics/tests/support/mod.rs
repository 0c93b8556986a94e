//! Operations with chosen times, and questions about them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use tarn_analytics::{
    Breakdown, CompiledPredicate, Measure, Predicate, Query, Statement, ValueNames,
};
use tarn_host::sim::Random;
use tarn_probe::{
    ClientId, DatasetId, HolderId, OperationKind, OperationRecord, Outcome, Protocol, What, Who,
};

/// One second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A read of NFS by client 20 that ended then and took so long.
pub fn read_of(client: u32, ended_ns: u64, latency_ns: u64) -> OperationRecord {
    let who = Who {
        client: ClientId(client),
        protocol: Protocol::Nfs4,
        user: 1000,
        holder: HolderId::NONE,
    };
    let what = What {
        kind: OperationKind::Read,
        dataset: DatasetId(1),
        object: 7,
        offset: 0,
        size: 4096,
    };
    OperationRecord::new(ended_ns - latency_ns, latency_ns, &who, &what, 0, &[0; 9])
}

/// An operation with few enough values in each field that each filter means some.
pub fn any_record(random: &mut Random, ended_ns: u64) -> OperationRecord {
    let kinds = [
        OperationKind::Read,
        OperationKind::Write,
        OperationKind::Lookup,
    ];
    let protocols = [Protocol::Nfs3, Protocol::Nfs4, Protocol::Fuse];
    let outcomes = [
        Outcome::CacheHit,
        Outcome::Disk,
        Outcome::Error,
        Outcome::Synchronous,
    ];
    let who = Who {
        client: ClientId(17 + u32::try_from(random.below(4)).unwrap()),
        protocol: protocols[random.index(3)],
        user: 1000 + u32::try_from(random.below(3)).unwrap(),
        holder: HolderId::NONE,
    };
    let what = What {
        kind: kinds[random.index(3)],
        dataset: DatasetId(1 + u32::try_from(random.below(2)).unwrap()),
        object: random.below(40),
        offset: random.below(8) * 4096,
        size: random.below(3) * 4096,
    };
    let latency_ns = random.magnitude(100_000_000);
    let outcome = outcomes[random.index(4)].bit() | outcomes[random.index(4)].bit();
    let stages = std::array::from_fn(|_| random.magnitude(2000));
    let started_ns = ended_ns - latency_ns;
    OperationRecord::new(started_ns, latency_ns, &who, &what, outcome, &stages)
}

/// Names of two clients and a dataset.
pub fn names() -> ValueNames {
    let mut names = ValueNames::new();
    names.add_client(ClientId(17), "10.0.0.1");
    names.add_client(ClientId(18), "10.0.0.2");
    names.add_dataset(DatasetId(1), "tank/home");
    names.add_file(DatasetId(1), 7, "/seven");
    names
}

/// The predicate of a text.
pub fn compiled(text: &str) -> CompiledPredicate {
    let predicate = Predicate::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    (predicate.compile(&names())).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The query of a statement, for so many columns from a time on.
pub fn query(text: &str, from_ns: u64, column_ns: u64, columns: u64, keys_max: usize) -> Query {
    let statement = Statement::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let predicate = statement.predicate.compile(&names());
    Query {
        range_ns: from_ns..from_ns + column_ns * columns,
        column_ns,
        predicate: predicate.unwrap_or_else(|error| panic!("{text}: {error}")),
        breakdown: statement.breakdown(),
        keys_max,
    }
}

/// Operations, not broken down.
pub fn plain() -> Breakdown {
    Breakdown::new(&[], None, Measure::Operations).unwrap()
}
