//! What can be asked of operations.

use crate::messages::analytics::{Field, Known, Statistic};
use tarn_analytics::{Measure, Values, fixed_values, statistics};
use tarn_archive::{Averaged, SAMPLED_STATISTICS};

/// All statistics and fields.
pub(crate) fn catalogue() -> Known {
    let names: Vec<String> = tarn_analytics::Field::all()
        .map(|field| field.name())
        .collect();
    let statistics = statistics().into_iter().map(|statistic| Statistic {
        name: statistic.name,
        title: statistic.title,
        unit: unit_of(statistic.measure).to_owned(),
        fields: names.clone(),
        is_sampled: false,
        is_mean: false,
    });
    let fields = tarn_analytics::Field::all().map(|field| Field {
        name: field.name(),
        kind: kind_of(field.values()).to_owned(),
        values: fixed_values(field).map(|values| values.into_iter().map(str::to_owned).collect()),
    });
    let sampled = SAMPLED_STATISTICS.iter().map(|sampled| Statistic {
        name: sampled.name.to_owned(),
        title: sampled.title.to_owned(),
        unit: sampled.unit.to_owned(),
        fields: sampled
            .fields
            .iter()
            .map(|field| (*field).to_owned())
            .collect(),
        is_sampled: true,
        is_mean: sampled.averaged == Averaged::Gauge,
    });
    Known {
        statistics: statistics.chain(sampled).collect(),
        fields: fields.collect(),
    }
}

fn unit_of(measure: Measure) -> &'static str {
    match measure {
        Measure::Operations => "operations",
        Measure::Bytes => "bytes",
        Measure::WaitTime => "ns",
    }
}

fn kind_of(values: Values) -> &'static str {
    match values {
        Values::Names => "names",
        Values::Ids => "ids",
        Values::Durations => "durations",
        Values::Bytes => "bytes",
    }
}
